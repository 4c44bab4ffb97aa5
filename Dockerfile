# syntax=docker/dockerfile:1
# The one image: the `plimsoll` binary, its libraries from Debian, and a user without rights.
#   docker build -t plimsoll/plimsoll:0.1.0 .

FROM debian:12 AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
# Packages first: they change less often than the sources, and this layer is kept.
COPY scripts/lib/install.sh scripts/lib/install.sh
RUN . scripts/lib/install.sh && need_packages "${BUILD_PACKAGES[@]}"
COPY . .
# --build-arg COMMIT=$(git rev-parse HEAD): what the metric plimsoll_build_info says.
ARG COMMIT=unknown
RUN cmake --preset release -DPLIMSOLL_COMMIT="$COMMIT" -DPLIMSOLL_BUILD_TESTS=OFF -DPLIMSOLL_BUILD_BENCHMARKS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
 && cmake --build --preset release \
 && DESTDIR=/image cmake --install build/release --strip

FROM debian:12-slim
LABEL org.opencontainers.image.title="plimsoll" \
      org.opencontainers.image.description="Sets the GPU count and GPU model of training jobs from an estimate of their peak GPU memory" \
      org.opencontainers.image.licenses="Apache-2.0"
# The shared libraries that the binary needs, and nothing else; the last line proves that none is missing.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      libboost-program-options1.74.0 libcpprest2.10 libjsoncpp25 libprometheus-cpp-core1.0 libre2-9 libsimdjson14 libssl3 libyaml-cpp0.7 zlib1g \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /image/ /
RUN ["/usr/bin/plimsoll", "--version"]
# As in distroless images: a number, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/usr/bin/plimsoll"]
CMD ["--help"]
