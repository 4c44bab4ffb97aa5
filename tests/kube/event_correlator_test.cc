#include "kube/event_correlator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kube/virtual_clock.h"

namespace plimsoll::kube {
namespace {

using std::chrono::seconds;
using testing::VirtualClock;

ObjectReference job(const std::string& name = "ads") {
  return {.api_version = "plimsoll.dev/v1alpha1",
          .kind = "TrainingJob",
          .namespace_name = "ns",
          .name = name,
          .uid = "u-" + name};
}

class CorrelatorTest : public ::testing::Test {
 protected:
  std::optional<CorrelatedEvent> say(const std::string& message, const ObjectReference& about = job()) {
    auto event = correlator_.correlate({.about = about,
                                        .type = EventType::kWarning,
                                        .reason = "OOMDetected",
                                        .message = message,
                                        .time = clock_.wall_now()});
    if (event) {
      correlator_.written(event->key, event->event);
    }
    return event;
  }

  VirtualClock clock_;
  EventCorrelator correlator_{{.component = "plimsoll", .instance = "pod-1", .clock = &clock_}};
};

TEST_F(CorrelatorTest, MakesAnEventAsClientGoDoes) {
  clock_.pass(seconds(1) + std::chrono::nanoseconds(255));
  const auto event = say("rank 3 ran out");
  ASSERT_TRUE(event);
  EXPECT_FALSE(event->is_known);
  const Json& json = event->event;
  EXPECT_EQ(json["metadata"]["name"].asString(), "ads.3b9acaff") << "object, dot, nanoseconds in hexadecimal";
  EXPECT_EQ(json["metadata"]["namespace"].asString(), "ns");
  EXPECT_EQ(json["involvedObject"]["kind"].asString(), "TrainingJob");
  EXPECT_EQ(json["involvedObject"]["uid"].asString(), "u-ads");
  EXPECT_EQ(json["type"].asString(), "Warning");
  EXPECT_EQ(json["reason"].asString(), "OOMDetected");
  EXPECT_EQ(json["source"]["component"].asString(), "plimsoll");
  EXPECT_EQ(json["count"].asInt(), 1);
  EXPECT_EQ(json["firstTimestamp"].asString(), "1970-01-01T00:00:01Z");
}

TEST_F(CorrelatorTest, TheSameAgainCountsUp) {
  const auto first = say("out of memory");
  clock_.pass(seconds(30));
  const auto again = say("out of memory");
  ASSERT_TRUE(first && again);
  EXPECT_TRUE(again->is_known);
  EXPECT_EQ(again->event["metadata"]["name"], first->event["metadata"]["name"]);
  EXPECT_EQ(again->patch["count"].asInt(), 2);
  EXPECT_EQ(again->patch["lastTimestamp"].asString(), "1970-01-01T00:00:30Z");
  EXPECT_EQ(again->event["firstTimestamp"].asString(), "1970-01-01T00:00:00Z");
  EXPECT_FALSE(say("out of memory", job("other"))->is_known);
}

TEST_F(CorrelatorTest, AnEventHasTheAnnotationsOfItsLatestOccurrence) {
  Occurrence occurrence{
      .about = job(), .reason = "Resized", .message = "to 64", .annotations = {{"a/b", "1"}}};
  const auto first = correlator_.correlate(occurrence);
  EXPECT_EQ(first->event["metadata"]["annotations"]["a/b"].asString(), "1");
  correlator_.written(first->key, first->event);
  occurrence.annotations = {{"a/b", "2"}};
  const auto again = correlator_.correlate(occurrence);
  EXPECT_TRUE(again->is_known) << "annotations do not make another event";
  EXPECT_EQ(again->patch["metadata"]["annotations"]["a/b"].asString(), "2");
  EXPECT_EQ(again->event["metadata"]["annotations"]["a/b"].asString(), "2");
  occurrence.annotations.clear();
  EXPECT_TRUE(correlator_.correlate(occurrence)->patch["metadata"].isNull());
}

TEST_F(CorrelatorTest, TheTenthOfItsKindIsCombined) {
  for (int i = 1; i < 10; ++i) {
    EXPECT_EQ(say("rank " + std::to_string(i))->event["message"].asString(), "rank " + std::to_string(i));
  }
  const auto tenth = say("rank 10");
  EXPECT_EQ(tenth->event["message"].asString(), "(combined from similar events): rank 10");
  EXPECT_FALSE(tenth->is_known);
  const auto eleventh = say("rank 11");
  EXPECT_TRUE(eleventh->is_known);
  EXPECT_EQ(eleventh->event["count"].asInt(), 2);
  EXPECT_EQ(eleventh->patch["message"].asString(), "(combined from similar events): rank 11");
  clock_.pass(seconds(601));
  EXPECT_EQ(say("rank 12")->event["message"].asString(), "rank 12") << "after ten quiet minutes";
}

TEST_F(CorrelatorTest, WhoNeverStopsIsCutOff) {
  for (int i = 0; i < 25; ++i) {
    EXPECT_TRUE(say("again")) << i;
  }
  EXPECT_FALSE(say("again"));
  EXPECT_TRUE(say("again", job("other"))) << "each object has its own";
  clock_.pass(seconds(299));
  EXPECT_FALSE(say("again"));
  clock_.pass(seconds(1));
  const auto event = say("again");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event["count"].asInt(), 28) << "what was dropped was counted";
}

TEST_F(CorrelatorTest, LongMessagesAreCutAtAWholeCharacter) {
  std::string message(1020, 'x');
  for (int i = 0; i < 10; ++i) {
    message += "\u20ac";
  }
  const std::string cut = say(message)->event["message"].asString();
  EXPECT_LE(cut.size(), 1024U);
  EXPECT_TRUE(cut.ends_with("x..."));
}

TEST_F(CorrelatorTest, WhatHasNoNamespaceIsToldInDefault) {
  const Json event =
      say("cordoned", {.api_version = "v1", .kind = "Node", .namespace_name = "", .name = "n", .uid = ""})
          ->event;
  EXPECT_EQ(event["metadata"]["namespace"].asString(), "default");
  EXPECT_FALSE(event["involvedObject"].isMember("namespace"));
}

}  // namespace
}  // namespace plimsoll::kube
