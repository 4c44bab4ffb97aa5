# Everything comes from Debian's packages (scripts/lib/install.sh lists them); nothing is downloaded by the build.
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(cpprestsdk REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(jsoncpp REQUIRED)
find_package(simdjson REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(ZLIB REQUIRED)

# Debian's jsoncpp config exports the target under its plain name only.
if(NOT TARGET JsonCpp::JsonCpp)
  add_library(JsonCpp::JsonCpp ALIAS jsoncpp_lib)
endif()

# Debian's re2 has no CMake package. pkg-config's -pthread would keep precompiled headers from being used.
find_library(RE2_LIBRARY re2 REQUIRED)
find_path(RE2_INCLUDE re2/re2.h REQUIRED)
add_library(re2::re2 UNKNOWN IMPORTED)
set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION ${RE2_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RE2_INCLUDE})

if(PLIMSOLL_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
  # Of the fake API server alone.
  find_package(CURL 7.85 REQUIRED)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(Protobuf 3.21 REQUIRED)
endif()
