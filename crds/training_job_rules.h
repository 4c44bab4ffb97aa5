// How a TrainingJob's fields must fit together: the CEL rules of the CRD in C++, each with the very sentence
// that the CRD says, and what no schema can say (names that collide, sums that overflow). Inside crds/ only.
// Pure; any thread.
#pragma once

#include "crds/field_path.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

void check_rules(const ModelSpec& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const DlrmModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TransformerModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TrainingSpec& training, const FieldPath& path, FieldErrors& errors);
void check_rules(const Parallelism& parallelism, const FieldPath& path, FieldErrors& errors);
void check_rules(const ProvisioningSpec& provisioning, const FieldPath& path, FieldErrors& errors);
void check_rules(const Trainers& trainers, const FieldPath& path, FieldErrors& errors);
void check_rules(const FailureRule& rule, const FieldPath& path, FieldErrors& errors);

}  // namespace plimsoll::crds
