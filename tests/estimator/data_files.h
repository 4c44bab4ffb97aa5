// Reads the data files beside the tests: CSV with a line of names, and YAML lists. A test that reads a missing file,
// or one without rows, fails. One thread.
//
//   for (const CsvRow& row : csv_rows("sharder/torchrec_options.csv")) row.number("milliseconds");
//   for (const MeasuredRun& run : measured_runs("estimate/dlrm_torch1.yaml")) run.bytes;
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json/json.h"
#include "base/yaml.h"
#include "crds/training_job.h"
#include "tests/checkout.h"

namespace plimsoll::estimator::testing {

inline std::string data_file(const std::string& name) {
  const Result<std::string> text = read_file(PLIMSOLL_SOURCE_DIR "/tests/estimator/" + name);
  EXPECT_TRUE(text.ok()) << name << ": " << (text ? "" : to_string(text.error()));
  return text ? *text : std::string();
}

class CsvRow {
 public:
  CsvRow(const std::vector<std::string>& names, const std::string& line) {
    std::istringstream fields(line);
    for (const std::string& name : names) {
      EXPECT_TRUE(std::getline(fields, fields_[name], ',')) << "no " << name << " in: " << line;
    }
  }

  const std::string& text(const std::string& name) const { return fields_.at(name); }
  std::int64_t integer(const std::string& name) const { return std::stoll(text(name)); }
  double number(const std::string& name) const { return std::stod(text(name)); }

 private:
  std::map<std::string, std::string> fields_;
};

// Lines that begin with # are comments.
inline std::vector<CsvRow> csv_rows(const std::string& name) {
  std::istringstream lines(data_file(name));
  std::vector<std::string> names;
  std::vector<CsvRow> rows;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    if (names.empty()) {
      std::istringstream header(line);
      for (std::string field; std::getline(header, field, ',');) {
        names.push_back(field);
      }
    } else {
      rows.emplace_back(names, line);
    }
  }
  EXPECT_FALSE(rows.empty()) << name << " has no rows";
  return rows;
}

inline std::vector<Json> yaml_rows(const std::string& name) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(data_file(name));
  EXPECT_TRUE(documents && documents->size() == 1 && documents->front().isArray())
      << name << " is not a list";
  std::vector<Json> rows;
  if (documents && !documents->empty() && documents->front().isArray()) {
    rows.assign(documents->front().begin(), documents->front().end());
  }
  EXPECT_FALSE(rows.empty()) << name << " has no rows";
  return rows;
}

// A file of tests/accuracy/measured_gpu, which a GPU's runs were written to.
inline Json measured_gpu_file(const std::string& name) {
  const Result<std::string> text = read_file(PLIMSOLL_SOURCE_DIR "/tests/accuracy/measured_gpu/" + name);
  EXPECT_TRUE(text.ok()) << name << ": " << (text ? "" : to_string(text.error()));
  const Result<std::vector<Json>> documents = parse_yaml_documents(text ? *text : "");
  EXPECT_TRUE(documents.ok() && documents->size() == 1) << name << " is not one document";
  return documents && documents->size() == 1 ? documents->front() : Json();
}

// One training iteration that was measured with real PyTorch.
struct MeasuredRun {
  std::string name;
  crds::TrainingJobSpec spec;  // its model and training
  std::int64_t bytes = 0;
  std::int64_t trainers = 1;
};

// `model` and `training` of the row.
inline crds::TrainingJobSpec spec_of_row(const Json& row) {
  Json object;
  object["apiVersion"] = "plimsoll.dev/v1alpha1";
  object["kind"] = "TrainingJob";
  object["metadata"]["name"] = "measured";
  object["spec"]["model"] = row["model"];
  object["spec"]["training"] = row["training"];
  Result<crds::TrainingJob> job = crds::decode_training_job(object);
  EXPECT_TRUE(job.ok()) << write_json(row) << ": " << (job ? "" : to_string(job.error()));
  return job ? std::move(job->spec) : crds::TrainingJobSpec();
}

inline std::vector<MeasuredRun> measured_runs(const std::string& file) {
  std::vector<MeasuredRun> runs;
  for (const Json& row : yaml_rows(file)) {
    runs.push_back(
        {row["case"].asString(), spec_of_row(row), row["bytes"].asInt64(), row.get("trainers", 1).asInt64()});
  }
  return runs;
}

}  // namespace plimsoll::estimator::testing
