// What the examples of cli/ leave open.
#pragma once

#include <sstream>

#include "cli/subcommands.h"
#include "tests/header_examples/anything.h"
