package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// server serves the API.
type server struct {
	a         *Agent
	group     int
	listeners []net.Listener
	servers   []*http.Server
	running   sync.WaitGroup
	ctx       context.Context // of all requests
	end       context.CancelFunc
	readers   chan struct{} // one token for each request of a user who may not change lanes
	reads     chan struct{} // one token for each read in the last readsTime, by any user
}

// Limits of requests. answerTime is long because a change waits half a minute for other changes.
const (
	maxBody    = 1 << 20
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	answerTime = 90 * time.Second
	closeTime  = 30 * time.Second
	maxReaders = 128
	maxReads   = 20 // in readsTime; more wait, so that they do not take the CPU from changes of lanes
	readsTime  = time.Second / 5
)

// listen opens the sockets, and does not answer yet.
func (a *Agent) listen() (*server, error) {
	s := &server{a: a, group: group(), readers: make(chan struct{}, maxReaders),
		reads: make(chan struct{}, maxReads)}
	s.ctx, s.end = context.WithCancel(context.Background())
	add := func(l net.Listener, err error, h http.Handler) error {
		if err != nil {
			return errors.Join(err, s.close())
		}
		s.listeners = append(s.listeners, l)
		s.servers = append(s.servers, &http.Server{Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime,
			WriteTimeout: answerTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ConnContext: withPeer,
			BaseContext: func(net.Listener) context.Context { return s.ctx },
			ErrorLog:    slog.NewLogLogger(a.o.Log.Handler(), slog.LevelWarn)})
		return nil
	}
	if a.o.Socket != "" {
		mode := fs.FileMode(0o660)
		if a.o.Readable {
			mode = 0o666
		}
		l, err := listenUnix(a.o.Socket, mode)
		if err = add(l, err, s.handler()); err != nil {
			return nil, err
		}
	}
	if a.o.Listen != "" {
		l, err := net.Listen("tcp", a.o.Listen)
		if err = add(l, err, s.handler()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *server) serve() {
	for i, l := range s.listeners {
		s.running.Go(func() { _ = s.servers[i].Serve(l) }) // ends by close
	}
}

// close ends all requests. It waits for a change that has begun to be rolled back.
func (s *server) close() error {
	if s == nil {
		return nil
	}
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var err error
	for i, one := range s.servers {
		if serr := one.Shutdown(ctx); serr != nil {
			err = errors.Join(err, one.Close())
		}
		if lerr := s.listeners[i].Close(); !errors.Is(lerr, net.ErrClosed) { // if it did not serve yet
			err = errors.Join(err, lerr)
		}
	}
	s.running.Wait()
	return err
}

// handler answers the requests of Routes and no others.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	answers := s.answers()
	for _, r := range Routes() {
		answer := answers[r.Path]
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(versionHeader, s.a.o.Version)
			p, _ := req.Context().Value(peerKey{}).(*peer)
			if err := s.allowed(p, r); err != nil {
				fail(w, http.StatusForbidden, err)
				return
			}
			if !p.changes(s.group) {
				select {
				case s.readers <- struct{}{}:
					defer func() { <-s.readers }()
				default:
					fail(w, http.StatusTooManyRequests, fmt.Errorf("expected at most %d requests at once", maxReaders))
					return
				}
			}
			if !r.Changes && !s.mayRead(req.Context()) {
				fail(w, http.StatusTooManyRequests, errors.New("the connection was closed, or its sending side, while "+
					"this waited for other requests: keep both sides open until the answer"))
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
			if err == nil { // otherwise the deadline would end a request that waits for other changes
				err = http.NewResponseController(w).SetReadDeadline(time.Time{})
			}
			if err != nil {
				fail(w, statusOf(badRequest{err}), fmt.Errorf("body: %w", err))
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			answer(w, req)
		})
	}
	return mux
}

// mayRead waits until a request may read, and returns false if its client hangs up before. A client that has
// closed only its sending side looks the same; without others it is answered all the same.
func (s *server) mayRead(ctx context.Context) bool {
	select {
	case s.reads <- struct{}{}:
	default:
		select {
		case s.reads <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	time.AfterFunc(readsTime, func() { <-s.reads })
	return true
}

// allowed says what a request lacks, or returns nil. Only root and the group may change lanes, and only
// through the socket.
func (s *server) allowed(p *peer, r Route) error {
	switch {
	case p.changes(s.group), p == nil && r.Method == http.MethodGet, p != nil && s.a.o.Readable && !r.Changes:
		return nil
	case p == nil:
		return fmt.Errorf("%s %s: expected it on the socket: this address is for GET", r.Method, r.Path)
	}
	return fmt.Errorf("%s %s: expected root or a member of group %s, found user %d; others may read where the "+
		"agent was started with --readable", r.Method, r.Path, Group, p.uid)
}
