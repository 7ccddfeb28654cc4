# The streamer as a container. It runs as a fixed user without privileges and writes to /var/lib/streamer only, so the root
# file system may be read-only. Zenoh keeps a few kilobytes in /dev/shm.
#
#   docker build --tag ustreamer .
#   docker run --read-only --volume ./streamer.yaml:/etc/ustreamer/streamer.yaml:ro --stop-timeout 45 ustreamer

FROM python:3.11-slim AS builder

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY streamer ./streamer
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/ustreamer \
    && /opt/ustreamer/bin/pip install --no-cache-dir /wheels/*.whl \
    && /opt/ustreamer/bin/pip uninstall --yes pip setuptools


FROM python:3.11-slim

LABEL org.opencontainers.image.title="uStreamer" \
      org.opencontainers.image.description="Routes uProtocol messages between MQTT 5 and Zenoh and loses none of them" \
      org.opencontainers.image.version="0.1.0" \
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
CMD ["run", "--config", "/etc/ustreamer/streamer.yaml"]
