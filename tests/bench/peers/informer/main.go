// The cache bench's peer: informers of client-go on pods and TrainingJobs, with the indexes and the projection
// that our side of the bench uses.
//
//	informer URL EVENTS
//
// Writes "synced SECONDS RESIDENT_KIB PEAK_KIB" once both collections are in the caches, waits for EVENTS
// changes of pods, writes "events SECONDS RESIDENT_KIB PEAK_KIB" for them, from the first to the last, collects
// garbage, writes "live HEAP_KIB" for what is left, and ends.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const jobLabel = "plimsoll.dev/job-name"

// memory is the resident size now and at its highest, in KiB.
func memory() (string, string) {
	status, _ := os.ReadFile("/proc/self/status")
	field := func(name string) string {
		for _, line := range strings.Split(string(status), "\n") {
			if rest, found := strings.CutPrefix(line, name+":"); found {
				return strings.Fields(rest)[0]
			}
		}
		return "0"
	}
	return field("VmRSS"), field("VmHWM")
}

func report(what string, took time.Duration) {
	resident, peak := memory()
	fmt.Println(what, took.Seconds(), resident, peak)
}

func slimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID,
		ResourceVersion: meta.ResourceVersion, Labels: meta.Labels, Annotations: meta.Annotations,
		OwnerReferences: meta.OwnerReferences, DeletionTimestamp: meta.DeletionTimestamp}
}

func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{ObjectMeta: slimMeta(&pod.ObjectMeta),
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason,
			Conditions: pod.Status.Conditions, ContainerStatuses: pod.Status.ContainerStatuses}}, nil
}

func slimJob(object any) (any, error) {
	if job, ok := object.(*unstructured.Unstructured); ok {
		job.SetManagedFields(nil)
	}
	return object, nil
}

func byOwner(object any) ([]string, error) {
	if owner := metav1.GetControllerOf(object.(*corev1.Pod)); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return nil, nil
}

func byJob(object any) ([]string, error) {
	pod := object.(*corev1.Pod)
	if job, labelled := pod.Labels[jobLabel]; labelled {
		return []string{pod.Namespace + "/" + job}, nil
	}
	return nil, nil
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: informer URL EVENTS")
		os.Exit(2)
	}
	events := must(strconv.ParseInt(os.Args[2], 10, 64))
	config := &rest.Config{Host: os.Args[1], QPS: -1}

	var seen atomic.Int64
	var first time.Time
	done := make(chan time.Duration, 1)
	podFactory := informers.NewSharedInformerFactoryWithOptions(
		must(kubernetes.NewForConfig(config)), 0, informers.WithTransform(slimPod))
	pods := podFactory.Core().V1().Pods().Informer()
	check(pods.AddIndexers(cache.Indexers{"owner": byOwner, "job": byJob}))
	must(pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) {
		switch seen.Add(1) {
		case 1:
			first = time.Now()
		case events:
			done <- time.Since(first)
		}
	}}))
	jobFactory := dynamicinformer.NewDynamicSharedInformerFactory(must(dynamic.NewForConfig(config)), 0)
	jobs := jobFactory.ForResource(
		schema.GroupVersionResource{Group: "plimsoll.dev", Version: "v1alpha1", Resource: "trainingjobs"}).Informer()
	check(jobs.SetTransform(slimJob))

	begin := time.Now()
	stop := make(chan struct{})
	podFactory.Start(stop)
	jobFactory.Start(stop)
	if !cache.WaitForCacheSync(stop, pods.HasSynced, jobs.HasSynced) {
		check(fmt.Errorf("the caches did not sync"))
	}
	report("synced", time.Since(begin))
	report("events", <-done)
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	fmt.Println("live", heap.HeapAlloc>>10)
	runtime.KeepAlive(podFactory)
	runtime.KeepAlive(jobFactory)
}
