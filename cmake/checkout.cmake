# Where the checkout is, for tests that read its files or start its program. In a header, because a definition on the command line
# would keep checkouts from sharing what ccache has of all the other tests.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/tests/checkout.h CONTENT
"#pragma once
#define PLIMSOLL_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"
#define PLIMSOLL_BINARY \"@PROJECT_BINARY_DIR@/bin/plimsoll\"
" @ONLY)
include_directories(${PROJECT_BINARY_DIR}/generated)
