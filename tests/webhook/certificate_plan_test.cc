#include "webhook/certificate_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/certificate_authority.h"
#include "http/certificate_source.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Clock::WallTime kBegin = *parse_time("2026-11-26T12:00:00Z");
constexpr auto kDay = 24h;

// A Secret over time.
class CertificatePlanTest : public ::testing::Test {
 protected:
  // Takes the plan; what it changes.
  std::vector<std::string> step(bool newest_is_trusted = true) {
    const Result<CertificatePlan> plan = plan_certificates(secret_, policy_, newest_is_trusted, now_);
    EXPECT_TRUE(plan.ok()) << (plan ? "" : plan.error().message);
    EXPECT_EQ(plan->changes.empty(), plan->secret == secret_);
    EXPECT_GT(plan->due, now_);
    secret_ = plan->secret;
    due_ = plan->due;
    return plan->changes;
  }

  std::size_t authorities() const { return http::read_certificates(secret_.authorities_pem).size(); }

  // Whether clients that trust these take what is served.
  bool accepted_by(const std::string& authorities_pem) const {
    return http::make_server_certificate(secret_.chain_pem, secret_.key_pem, authorities_pem, now_).ok();
  }

  CertificatePolicy policy_{.names = {"webhook.ns.svc", "webhook.ns.svc.cluster.local"}};
  Clock::WallTime now_ = kBegin;
  Clock::WallTime due_{};
  CertificateSecret secret_;
};

TEST_F(CertificatePlanTest, AnEmptySecretGetsBothAtOnce) {
  EXPECT_THAT(step(false), ElementsAre(HasSubstr("made an authority: there is none"),
                                       HasSubstr("issued the serving certificate: there is none")));
  EXPECT_TRUE(accepted_by(secret_.authorities_pem));
  for (const std::string& name : policy_.names) {
    EXPECT_TRUE(http::names_host(secret_.chain_pem, name));
  }
  EXPECT_TRUE(http::is_key_of(secret_.authority_key_pem, newest_authority(secret_.authorities_pem)));
}

TEST_F(CertificatePlanTest, NothingChangesUntilItIsDue) {
  step();
  EXPECT_EQ(due_, kBegin + 60 * kDay);
  EXPECT_THAT(step(), IsEmpty());
  now_ = due_ - 1s;
  EXPECT_THAT(step(), IsEmpty());
  now_ += 1s;
  const std::string authority = secret_.authorities_pem;
  EXPECT_THAT(step(), ElementsAre(HasSubstr("it expires at 2027-02-24T12:00:00Z")));
  EXPECT_EQ(secret_.authorities_pem, authority);
  EXPECT_EQ(due_, now_ + 60 * kDay);
}

TEST_F(CertificatePlanTest, ANewAuthoritySignsOnlyWhenItIsTrusted) {
  step();
  const std::string old_authority = secret_.authorities_pem;
  const CertificateSecret before = secret_;
  secret_.authority_key_pem.clear();  // as somebody does who wants another authority
  EXPECT_THAT(step(false), ElementsAre(HasSubstr("no key of the newest")));
  EXPECT_EQ(secret_.chain_pem, before.chain_pem);
  EXPECT_EQ(authorities(), 2U);
  EXPECT_THAT(secret_.authorities_pem, HasSubstr(old_authority));
  EXPECT_THAT(step(false), IsEmpty());
  EXPECT_THAT(step(true), ElementsAre(HasSubstr("the newest authority is trusted")));
  EXPECT_TRUE(accepted_by(newest_authority(secret_.authorities_pem)));
  EXPECT_FALSE(accepted_by(old_authority));
  EXPECT_EQ(authorities(), 2U);
  EXPECT_EQ(due_, now_ + kDay);
  now_ = due_;
  EXPECT_THAT(step(true), ElementsAre(HasSubstr("left out authorities")));
  EXPECT_EQ(authorities(), 1U);
}

// An API server that learns of authorities one pass late trusts what is served at every moment, over 20 years.
TEST_F(CertificatePlanTest, WhoTrustsWhatWasTrustedBeforeIsNeverRefused) {
  step();
  int made = 0;
  std::string trusted = secret_.authorities_pem;
  const auto pass = [&](bool newest_is_trusted) {
    for (const std::string& change : step(newest_is_trusted)) {
      made += change.starts_with("made") ? 1 : 0;
    }
    ASSERT_TRUE(accepted_by(trusted)) << format_time(now_);
    ASSERT_LE(authorities(), 2U) << format_time(now_);
    trusted = secret_.authorities_pem;
  };
  while (now_ < kBegin + 20 * 365 * kDay) {
    now_ = due_;
    pass(false);
    now_ += 5min;
    pass(true);
  }
  EXPECT_EQ(made, 4);
}

TEST_F(CertificatePlanTest, ACertificateEndsBeforeItsAuthority) {
  policy_.authority_duration = 3 * policy_.duration;
  step();
  for (int i = 0; i < 20; ++i) {
    now_ = due_;
    step(true);
    step(true);
    const auto served = http::read_certificates(secret_.chain_pem);
    const auto newest = http::read_certificates(secret_.authorities_pem);
    EXPECT_LE(served.front().validity.not_after, newest.front().validity.not_after);
    EXPECT_GE(served.front().validity.not_before, newest.front().validity.not_before);
  }
}

TEST_F(CertificatePlanTest, WhatExpiredWhileNothingRanIsMadeAnewAtOnce) {
  step();
  now_ += 91 * kDay;
  EXPECT_THAT(step(false), ElementsAre(HasSubstr("tls.crt expired at")));
  EXPECT_TRUE(accepted_by(secret_.authorities_pem));
  now_ += 6 * 365 * kDay;
  EXPECT_THAT(step(false), SizeIs(2));
  EXPECT_TRUE(accepted_by(secret_.authorities_pem));
  EXPECT_EQ(authorities(), 1U);
}

TEST_F(CertificatePlanTest, WhatIsDamagedIsMadeAnew) {
  step();
  const CertificateSecret good = secret_;
  const http::KeyPair strange = *http::make_authority("strange", {kBegin - 1h, kBegin + 9000h});
  const auto mended = [&](const char* what) {
    EXPECT_FALSE(step(false).empty()) << what;
    EXPECT_TRUE(accepted_by(secret_.authorities_pem)) << what;
    EXPECT_THAT(step(true), ::testing::AnyOf(IsEmpty(), ElementsAre(HasSubstr("is trusted")))) << what;
    secret_ = good;
  };
  secret_.chain_pem = "garbage";
  mended("tls.crt");
  secret_.key_pem = strange.key_pem;
  mended("tls.key");
  secret_.chain_pem = strange.certificate_pem;
  secret_.key_pem = strange.key_pem;
  mended("a pair of another authority");
  secret_.authorities_pem = "garbage";
  mended("ca.crt");
  secret_.authorities_pem = strange.certificate_pem;
  mended("ca.crt of another");
  secret_.authority_key_pem = strange.key_pem;
  mended("ca.key");
  secret_.authorities_pem.clear();
  mended("no ca.crt");
}

TEST_F(CertificatePlanTest, OtherNamesNeedAnotherCertificate) {
  step();
  policy_.names.emplace_back("renamed.ns.svc");
  EXPECT_THAT(step(false), ElementsAre(HasSubstr("it lacks the name renamed.ns.svc")));
  EXPECT_TRUE(http::names_host(secret_.chain_pem, "renamed.ns.svc"));
  policy_.names = {"renamed.ns.svc"};  // of another replica, whose names are fewer: both are content
  EXPECT_THAT(step(false), IsEmpty());
}

TEST_F(CertificatePlanTest, ManyAuthoritiesAreBoundedAndTheOneInUseStays) {
  step();
  const std::string first = newest_authority(secret_.authorities_pem);
  for (int i = 0; i < 20; ++i) {
    secret_.authority_key_pem.clear();
    step(false);
    EXPECT_LE(authorities(), 8U);
    EXPECT_THAT(secret_.authorities_pem, HasSubstr(first));
    EXPECT_TRUE(accepted_by(secret_.authorities_pem));
  }
}

TEST(CertificatePolicy, SaysWhatDoesNotFit) {
  const CertificatePolicy good{.names = {"webhook.ns.svc"}};
  EXPECT_TRUE(check(good).ok());
  const auto problem = [&](auto change) {
    CertificatePolicy policy = good;
    change(policy);
    const Result<void> checked = check(policy);
    return checked ? "" : checked.error().message;
  };
  EXPECT_THAT(problem([](auto& p) { p.names.clear(); }), HasSubstr("needs a name"));
  EXPECT_THAT(problem([](auto& p) { p.names = {"a,b"}; }), HasSubstr("\"a,b\""));
  EXPECT_THAT(problem([](auto& p) { p.renew_before = p.duration; }), HasSubstr("renewed before it ends"));
  EXPECT_THAT(problem([](auto& p) { p.renew_before = 0s; }), HasSubstr("renewed"));
  EXPECT_THAT(problem([](auto& p) { p.authority_duration = 2 * p.duration; }), HasSubstr("three times"));
}

}  // namespace
}  // namespace plimsoll::webhook
