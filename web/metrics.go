package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics counts what this server does, in a registry of its own.
type metrics struct {
	http.Handler
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	streams  prometheus.Gauge
	live     prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dsh_http_requests_total", Help: "Requests by route, method and status."}, []string{"route", "method", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dsh_http_request_seconds", Help: "Time to answer, by route.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 10}}, []string{"route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dsh_stream_clients", Help: "Open event streams."}),
		live:    prometheus.NewCounter(prometheus.CounterOpts{Name: "dsh_live_text_bytes_total", Help: "Bytes of live text sent to viewers."}),
	}
	r.MustRegister(m.requests, m.took, m.streams, m.live, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dsh_http_connections", Help: "Open connections."}, func() float64 { return float64(s.conns.Open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dsh_sessions_live", Help: "Agents in memory."}, func() float64 { return float64(s.host.Report().Live) }),
	)
	m.Handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) stream(n int) { m.streams.Add(float64(n)) }

func (m *metrics) delta(n int) { m.live.Add(float64(n)) }
