# One image for every role; `docker-compose.yml` says which role a service runs.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE requirements.lock requirements-build.lock ./
RUN python3 -m venv /opt/kici-scaler \
    && /opt/kici-scaler/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && python3 -m venv /opt/builder \
    && /opt/builder/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY kici_scaler kici_scaler
COPY tasks tasks
COPY workers workers
COPY config config
RUN /opt/builder/bin/hatchling build -t wheel -d /build/dist \
    && /opt/kici-scaler/bin/pip install --no-cache-dir --no-deps --no-index /build/dist/*.whl

FROM ${BASE}
# Packet rules of isolated containers are written with nft.
RUN command -v nft >/dev/null || (apt-get update \
    && apt-get install -y --no-install-recommends nftables \
    && rm -rf /var/lib/apt/lists/*)
RUN useradd --system --create-home --home-dir /var/lib/kici --uid 10001 kici \
    && mkdir -p /var/lib/kici/keys /var/lib/kici/state /var/lib/kici/prometheus \
    && chown kici /var/lib/kici/keys /var/lib/kici/state /var/lib/kici/prometheus
COPY --from=build /opt/kici-scaler /opt/kici-scaler
ENV PATH=/opt/kici-scaler/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KICI_HOST=0.0.0.0 \
    KICI_STATE_DIR=/var/lib/kici/state
USER kici
WORKDIR /var/lib/kici
ENTRYPOINT ["kici-scaler"]
CMD ["--help"]
