# A worker as a container: `fanfold worker` with what requirements-worker.lock pins, byte code included.
# The digest is that of the index of all platforms (Python 3.13.14, August 2026); docs/deployment.md says how to renew it.
FROM python:3.13-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8 AS base

FROM base AS build
COPY requirements-worker.lock /build/
RUN python -m pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
      --only-binary :all: --target /app/site -r /build/requirements-worker.lock
COPY functions /app/functions
COPY fanfold /app/fanfold
RUN python -m compileall -q --invalidation-mode unchecked-hash /app

FROM base
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin fanfold
COPY --from=build /app /app
ENV PYTHONPATH=/app:/app/site PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001
# Drains: takes nothing new, lets every run go at its next step boundary, ends within `drain_seconds` and a few more.
STOPSIGNAL SIGTERM
# A worker that has gone deaf ends by itself, and the container with it; there is nothing to ask it.
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "fanfold.commands.command_line", "worker"]
CMD ["--class", "model"]
