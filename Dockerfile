# syntax=docker/dockerfile:1
# One image for every process of Adloom. TORCH_INDEX_URL may name an extra package index with CPU
# builds of torch, which makes the image several times smaller; empty gives the CUDA build.
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS build
ARG TORCH_INDEX_URL=""
WORKDIR /opt/adloom
RUN python -m venv /opt/venv
COPY pyproject.toml constraints.txt README.md ./
COPY app app
COPY bench bench
COPY engine engine
COPY workers workers
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/venv/bin/pip install --only-binary :all: --constraint constraints.txt \
    ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} --editable .

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/adloom adloom \
    && install --directory --owner adloom /var/lib/adloom/artifacts
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/adloom /opt/adloom
COPY migrations /opt/adloom/migrations
COPY templates /opt/adloom/templates
COPY examples /opt/adloom/examples
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ADLOOM_STATE_DIR=/var/lib/adloom \
    ADLOOM_HOST=0.0.0.0
WORKDIR /opt/adloom
USER adloom
EXPOSE 8000
ENTRYPOINT ["adloom"]
CMD ["web"]
