# The host with its embedded database. A build without a C compiler works too; this one has it for the faster SQLite.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -trimpath -ldflags '-s -w' -o /out/ ./cmd/...

FROM debian:bookworm-slim
# bash and git are what the agents use; tini reaps what they leave behind.
RUN apt-get update && apt-get install -y --no-install-recommends bash ca-certificates git procps tini && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /usr/local/bin/
ENV DSH_HOME=/data
VOLUME /data
EXPOSE 3080
ENTRYPOINT ["tini", "--", "dsh-web"]
# In a container the host must listen on its network address; it then wants to know the name browsers use.
CMD ["serve", "--listen", "0.0.0.0:3080", "--allow-host", "localhost:3080", "--allow-host", "127.0.0.1:3080"]
