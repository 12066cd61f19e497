# docker build -t postgrad .                        CPU
# docker build -t postgrad:cuda --target cuda .     with torch's CUDA build
# docker run --rm --network none postgrad demo --quick
# tools/image.sh has the steps, so that they can be tried without an image.
FROM python:3.11-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /src

FROM base AS cuda
RUN sh /src/tools/image.sh /src /opt/postgrad && rm -rf /src
RUN useradd --create-home postgrad
USER postgrad
WORKDIR /home/postgrad
ENTRYPOINT ["/opt/postgrad/bin/postgrad"]

FROM base AS cpu
ARG TORCH_INDEX=""
RUN sh /src/tools/image.sh /src /opt/postgrad "$TORCH_INDEX" && rm -rf /src
RUN useradd --create-home postgrad
USER postgrad
WORKDIR /home/postgrad
ENTRYPOINT ["/opt/postgrad/bin/postgrad"]
