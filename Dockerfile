# The search half: index, search, serve. No PyTorch.
#   docker build -t boolattn .
#   docker run --rm -v "$PWD":/data boolattn index /data/docs.jsonl --out /data/index
#   docker run --rm -p 8000:8000 -v "$PWD/index":/index:ro boolattn
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY requirements.lock /tmp/requirements.lock
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir -c /tmp/requirements.lock "$(ls /wheels/*.whl)[serve]" \
    && rm -r /wheels /tmp/requirements.lock \
    && useradd --create-home --uid 10001 boolattn
USER boolattn
WORKDIR /home/boolattn
VOLUME /index
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["boolattn"]
CMD ["serve", "/index", "--host", "0.0.0.0", "--port", "8000"]
