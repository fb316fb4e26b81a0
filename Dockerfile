# The search half: index, search, serve. No PyTorch.
#   docker build -t boolattn .
#   docker run --rm -v "$PWD":/data boolattn index /data/docs.jsonl --out /data/index
#   docker run --rm -p 8000:8000 -v "$PWD/index":/index:ro boolattn
FROM python:3.12-slim AS base
COPY requirements-search.lock /tmp/requirements.lock
RUN python -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock

FROM base AS build
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM base
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --no-deps /wheels/*.whl \
    && rm -r /wheels \
    && useradd --create-home --uid 10001 boolattn
ENV ORT_DISABLE_TELEMETRY=1 RAY_USAGE_STATS_ENABLED=0
USER boolattn
WORKDIR /home/boolattn
VOLUME /index
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["boolattn"]
CMD ["serve", "/index", "--host", "0.0.0.0", "--port", "8000"]
