package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
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
	r.MustRegister(sessionStates{s})
	m.Handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) stream(n int) { m.streams.Add(float64(n)) }

func (m *metrics) delta(n int) { m.live.Add(float64(n)) }

// sessionStates counts sessions when it is asked: the store knows them, so nothing is kept here.
type sessionStates struct{ server *Server }

// countedSessions bounds what one look counts.
const countedSessions = 1000

func (c sessionStates) desc() *prometheus.Desc {
	return prometheus.NewDesc("dsh_sessions", "Sessions that run or are damaged, counted up to 1,000.", []string{"status"}, nil)
}

// Describe names the one metric.
func (c sessionStates) Describe(out chan<- *prometheus.Desc) { out <- c.desc() }

// Collect counts.
func (c sessionStates) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, status := range []string{host.StatusRunning, host.StatusDamaged} {
		list, err := c.server.host.List(ctx, session.Query{Status: status, Limit: countedSessions})
		if err != nil {
			out <- prometheus.NewInvalidMetric(c.desc(), err)
			return
		}
		out <- prometheus.MustNewConstMetric(c.desc(), prometheus.GaugeValue, float64(len(list.Sessions)), status)
	}
}
