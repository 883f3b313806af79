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

// metrics counts what this server does, in a registry of its own. What happened in sessions is counted by tally. An answer is gathered whole
// before its first byte is written, so a slow reader of it holds nothing.
type metrics struct {
	registry *prometheus.Registry
	answer   http.Handler
	tally    *tally
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	clients  *prometheus.GaugeVec
	live     prometheus.Counter
	queued   prometheus.Histogram
	commit   prometheus.Histogram
	failed   prometheus.Counter
}

// askTime bounds what one answer asks the store and the system for.
const askTime = 2 * time.Second

// The kinds of stream clients.
const (
	kindStream   = "stream"
	kindSSE      = "sse"
	kindTerminal = "terminal"
)

func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	short := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 10}
	m := &metrics{
		registry: r,
		tally:    newTally(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dsh_http_requests_total", Help: "Requests by route, method and status."}, []string{"route", "method", "status"}),
		took:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dsh_http_request_seconds", Help: "Time to answer, by route.", Buckets: short[2:]}, []string{"route"}),
		clients:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dsh_stream_clients", Help: "Open streams by kind: stream and terminal are websockets."}, []string{"kind"}),
		live:     prometheus.NewCounter(prometheus.CounterOpts{Name: "dsh_live_text_bytes_total", Help: "Bytes of live text sent to viewers."}),
		queued:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dsh_commit_queue_seconds", Help: "How long the oldest update of a commit had waited.", Buckets: short}),
		commit:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dsh_commit_seconds", Help: "How long a commit took in the store.", Buckets: short}),
		failed:   prometheus.NewCounter(prometheus.CounterOpts{Name: "dsh_commit_failures_total", Help: "Commits that failed for at least one session."}),
	}
	for _, kind := range []string{kindStream, kindSSE, kindTerminal} {
		m.clients.WithLabelValues(kind)
	}
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("dsh_http_connections", "Open connections.", func() float64 { return float64(s.conns.Open()) })
	gauge("dsh_sessions_live", "Agents in memory.", func() float64 { return float64(s.host.Report().Live) })
	gauge("dsh_commit_queue_length", "Updates that wait for the next commit.", func() float64 { return float64(s.host.Journal().Queued()) })
	r.MustRegister(m.requests, m.took, m.clients, m.live, m.queued, m.commit, m.failed, looked{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(m.tally.collectors()...)
	m.answer = promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return m
}

// ServeHTTP answers with everything that was committed before the request came.
func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.tally.count()
	m.answer.ServeHTTP(w, r)
}

// observer is what the host tells.
func (m *metrics) observer() host.Observer {
	return host.Observer{Committed: m.tally.committed, Commit: func(s session.CommitStats) {
		m.queued.Observe(s.Queued.Seconds())
		m.commit.Observe(s.Took.Seconds())
		if s.Failed {
			m.failed.Inc()
		}
	}}
}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

// client counts an open stream until gone is called.
func (m *metrics) client(kind string) (gone func()) {
	g := m.clients.WithLabelValues(kind)
	g.Inc()
	return g.Dec
}

func (m *metrics) delta(n int) { m.live.Add(float64(n)) }

// looked gives what is looked up for each answer, since the store and the system know it: nothing of it is kept here.
type looked struct{ server *Server }

// countedSessions bounds what one look counts.
const countedSessions = 1000

// described are the metrics of looked.
func (looked) described() (sessions, pending, processes, bytes *prometheus.Desc) {
	return prometheus.NewDesc("dsh_sessions", "Sessions that run or are damaged, counted up to 1,000.", []string{"status"}, nil),
		prometheus.NewDesc("dsh_approvals_pending", "Approvals and questions that wait for the owner, in up to 1,000 running sessions.", nil, nil),
		prometheus.NewDesc("dsh_processes", "Living processes of all agents.", nil, nil),
		prometheus.NewDesc("dsh_database_bytes", "What the store takes on disk.", nil, nil)
}

// Describe names them.
func (l looked) Describe(out chan<- *prometheus.Desc) {
	sessions, pending, processes, bytes := l.described()
	out <- sessions
	out <- pending
	out <- processes
	out <- bytes
}

// Collect looks. What can't be found out is left out; the answer says so.
func (l looked) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	sessions, pending, processes, bytes := l.described()
	put := func(desc *prometheus.Desc, value float64, err error, labels ...string) {
		if err != nil {
			out <- prometheus.NewInvalidMetric(desc, err)
			return
		}
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, status := range []string{host.StatusRunning, host.StatusDamaged} {
		list, err := l.server.host.List(ctx, session.Query{Status: status, Limit: countedSessions})
		put(sessions, float64(len(list.Sessions)), err, status)
		if status == host.StatusRunning { // only a running turn asks
			wait := 0
			for _, s := range list.Sessions {
				wait += s.PendingApprovals
			}
			put(pending, float64(wait), err)
		}
	}
	count, err := l.server.host.Processes()
	put(processes, float64(count), err)
	size, err := l.server.host.Journal().Size(ctx)
	put(bytes, float64(size), err)
}
