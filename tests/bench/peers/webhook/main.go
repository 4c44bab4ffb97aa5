// The admission bench's peer: a mutating webhook on controller-runtime, as kubebuilder lays one out, that
// decodes each TrainingJob into its Go type and answers a patch that is always the same.
//
//	webhook CERTIFICATE_DIRECTORY PORT PATH PATCH
//
// PATCH is a JSON array of RFC 6902 operations. Serves on the loopback until it is told to stop.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TrainingJob holds the fields that ours decodes of a recommendation model.
type TrainingJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Model struct {
			Family string `json:"family"`
			DLRM   *struct {
				DenseFeatures int64            `json:"denseFeatures"`
				BottomMLP     []int64          `json:"bottomMLP"`
				TopMLP        []int64          `json:"topMLP"`
				Interaction   string           `json:"interaction"`
				Tables        []EmbeddingTable `json:"tables"`
			} `json:"dlrm,omitempty"`
		} `json:"model"`
		Training struct {
			BatchSizePerTrainer int64  `json:"batchSizePerTrainer"`
			Precision           string `json:"precision"`
			Optimizer           string `json:"optimizer"`
		} `json:"training"`
		Trainers struct {
			Replicas int64  `json:"replicas"`
			PerNode  int64  `json:"perNode"`
			GPUModel string `json:"gpuModel"`
		} `json:"trainers"`
		Template runtime.RawExtension `json:"template"`
	} `json:"spec"`
}

// EmbeddingTable is one table of a model, or several that are alike.
type EmbeddingTable struct {
	Name            string             `json:"name"`
	Count           int64              `json:"count,omitempty"`
	Rows            int64              `json:"rows"`
	Dim             int64              `json:"dim"`
	PoolingFactor   intstr.IntOrString `json:"poolingFactor,omitempty"`
	LookupFrequency intstr.IntOrString `json:"lookupFrequency,omitempty"`
}

// DeepCopyObject is never called: a webhook owns what it decodes.
func (job *TrainingJob) DeepCopyObject() runtime.Object { return job }

type handler struct {
	decoder admission.Decoder
	patches []jsonpatch.JsonPatchOperation
}

func (h *handler) Handle(_ context.Context, request admission.Request) admission.Response {
	job := &TrainingJob{}
	if err := h.decoder.Decode(request, job); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if job.Spec.Model.DLRM == nil || len(job.Spec.Model.DLRM.Tables) == 0 {
		return admission.Errored(http.StatusBadRequest, errors.New("the job has no tables"))
	}
	return admission.Patched("", h.patches...)
}

func run() error {
	if len(os.Args) != 5 {
		return errors.New("usage: webhook CERTIFICATE_DIRECTORY PORT PATH PATCH")
	}
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	var patches []jsonpatch.JsonPatchOperation
	if err := json.Unmarshal([]byte(os.Args[4]), &patches); err != nil {
		return fmt.Errorf("PATCH: %w", err)
	}
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: "plimsoll.dev", Version: "v1alpha1"}
	scheme.AddKnownTypes(version, &TrainingJob{})
	metav1.AddToGroupVersion(scheme, version)
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: os.Args[1]})
	server.Register(os.Args[3], &webhook.Admission{
		Handler: &handler{decoder: admission.NewDecoder(scheme), patches: patches}})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return server.Start(ctx)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}
