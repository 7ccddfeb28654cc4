# The streamer as a container. It runs as a fixed user without privileges and writes to /var/lib/streamer only, so the root
# file system may be read-only. Zenoh keeps a few kilobytes in /dev/shm.
#
#   make image                                                   # or docker build --tag ustreamer ., which knows no version
#   docker build --tag ustreamer --build-arg LOCK=trace .        # can write routing traces (trace: in the configuration)
#   docker run --read-only --volume ./streamer.yaml:/etc/ustreamer/streamer.yaml:ro --stop-timeout 60 ustreamer

# Base image and packages are known by their hashes, so that the same source makes the same image. The digest is that of the
# list for all platforms. To renew it: docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b AS builder

# Which lock is installed: run, or trace.
ARG LOCK=run
# The version, since the repository stays out: --build-arg VERSION="$(python3 build_backend.py)", as `make image` does.
ARG VERSION=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements ./requirements
# The C compiler stays in this stage; it is that of the base image's Debian, which keeps only its latest version.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: --requirement requirements/compile.lock \
    && python -m venv /opt/ustreamer \
    && /opt/ustreamer/bin/pip install --require-hashes --only-binary :all: --requirement "requirements/${LOCK}.lock"
COPY pyproject.toml setup.py build_backend.py README.md LICENSE ./
COPY streamer ./streamer
RUN USTREAMER_VERSION="${VERSION}" USTREAMER_COMPILE=1 /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/ustreamer/bin/pip install --no-index --no-deps /wheels/*.whl \
    && /opt/ustreamer/bin/pip uninstall --yes pip setuptools


FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b

ARG VERSION=unknown
LABEL org.opencontainers.image.title="uStreamer" \
      org.opencontainers.image.description="Routes uProtocol messages between MQTT 5 and Zenoh and loses none of them" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

# A fixed number, so that Kubernetes can see that it is not root, and volumes can be given to it.
RUN groupadd --system --gid 10001 ustreamer \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin ustreamer \
    && install -d --owner=10001 --group=10001 --mode=0750 /var/lib/streamer \
    && install -d /etc/ustreamer

COPY --from=builder /opt/ustreamer /opt/ustreamer

ENV PATH=/opt/ustreamer/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /var/lib/streamer
VOLUME /var/lib/streamer
USER 10001:10001
EXPOSE 7447 9464
STOPSIGNAL SIGTERM

# Whether the event loop runs. Not /readyz: a broker that is away is no reason to restart the streamer.
HEALTHCHECK --interval=15s --timeout=5s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/healthz', timeout=3).read()"]

ENTRYPOINT ["streamer"]
CMD ["run"]
