package agent

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// Route is a kind of request that the agent answers.
type Route struct {
	Method, Path string
	Summary      string
	Query        map[string]string // the parameters and their meanings
	Body         string            // kind of the YAML documents in it; "": none
	Answer       string            // kind of the document; "": what the summary says
	Lines        bool              // one document a line, as they come
	Changes      bool              // it changes lanes
}

// Routes returns all routes. `go test ./cmd/isolane -update` makes the OpenAPI document from them.
func Routes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/status", Answer: "Status",
			Summary: "What is in force and what of it is not, as isolane status -o json; at most a second old"},
		{Method: "GET", Path: "/v1/readings", Answer: "Intruders",
			Summary: "The last reading: who disturbs lanes and what drifts, as isolane watch -o json"},
		{Method: "GET", Path: "/v1/events", Answer: "Event", Lines: true,
			Summary: "What happens from now on, a line each, until the client leaves"},
		{Method: "GET", Path: "/v1/evidence", Answer: "Evidence",
			Summary: "The last proof of each lane, and what of it still stands"},
		{Method: "POST", Path: "/v1/plan", Body: lane.Kind, Answer: plan.Kind,
			Summary: "Where lanes would go beside those in force, as isolane plan -o json; changes nothing"},
		{Method: "POST", Path: "/v1/apply", Body: lane.Kind, Answer: "Applied", Changes: true,
			Query:   map[string]string{"prune": "true: lanes in force that the body does not name are released"},
			Summary: "Puts lanes in force, as isolane apply -o json; without a body, puts back what drifted"},
		{Method: "POST", Path: "/v1/release", Answer: "Released", Changes: true,
			Query: map[string]string{"lane": "name of one; may be given several times",
				"all": "true: all that are in force"},
			Summary: "Takes lanes back, as isolane release -o json"},
		{Method: "GET", Path: "/metrics", Summary: "For Prometheus"},
		{Method: "GET", Path: "/openapi.json", Summary: "This document"},
	}
}

// Failure says why a request was not answered.
type Failure struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Failure
	Error      string `json:"error"`
}

// Evidence is what was proved about the lanes in force.
type Evidence struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // Evidence
	Lanes      []Proven `json:"lanes"`
}

// Proven is the last proof of a lane.
type Proven struct {
	Lane       string           `json:"lane"`
	Objectives []lane.Judgement `json:"objectives"`
	Proof      *lane.Proof      `json:"proof,omitempty"` // whether or not it is still valid
}

//go:embed openapi.json
var openAPI []byte

// answers returns the handlers by the paths of Routes.
func (s *server) answers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/v1/status":   s.document(s.status),
		"/v1/readings": s.document(s.readings),
		"/v1/events":   s.events,
		"/v1/evidence": s.document(s.evidence),
		"/v1/plan":     s.document(s.plan),
		"/v1/apply":    s.document(s.apply),
		"/v1/release":  s.document(s.release),
		"/metrics":     s.a.metricsHandler().ServeHTTP,
		"/openapi.json": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openAPI) // fails if the client has gone
		},
	}
}

// document answers with a document, or with the reason why there is none.
func (s *server) document(of func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := of(r)
		if refusal, ok := errors.AsType[*plan.Refusal](err); ok {
			write(w, http.StatusConflict, refusal)
			return
		}
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		write(w, http.StatusOK, d)
	}
}

func fail(w http.ResponseWriter, status int, err error) {
	write(w, status, Failure{plan.APIVersion, "Failure", strings.ReplaceAll(err.Error(), "\n", "; ")})
}

func write(w http.ResponseWriter, status int, d any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(d) // fails if the client has gone
}

// badRequest is a mistake of the client.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

// statusOf returns the HTTP status of an error. It tells mistakes of the client from conflicts with the state
// of the host, and from failures of the agent.
func statusOf(err error) int {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, new(*lane.FieldError)), errors.As(err, new(badRequest)):
		return http.StatusBadRequest
	case errors.As(err, new(*enforce.NoLaneError)):
		return http.StatusNotFound
	case errors.As(err, new(*plan.Mismatch)), errors.As(err, new(*lanes.TargetError)),
		errors.As(err, new(*enforce.OwnedError)), errors.As(err, new(*enforce.NoRecordError)),
		errors.Is(err, journal.ErrBusy):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func (s *server) status(r *http.Request) (any, error) {
	return s.a.status.get(r.Context(), s.a.o.Lanes, time.Second)
}

func (s *server) readings(*http.Request) (any, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.a.last, nil // nobody changes its contents
}

func (s *server) evidence(r *http.Request) (any, error) {
	status, err := s.a.status.get(r.Context(), s.a.o.Lanes, time.Second)
	e := Evidence{APIVersion: plan.APIVersion, Kind: "Evidence", Lanes: []Proven{}}
	for _, l := range status.Lanes {
		e.Lanes = append(e.Lanes, Proven{l.Name, append([]lane.Judgement{}, l.Objectives...), l.Proof})
	}
	return e, err
}

// wanted returns the lanes in the body of a request.
func wanted(r *http.Request) ([]lane.Lane, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	return lane.Parse("body", bytes.NewReader(text))
}

func (s *server) plan(r *http.Request) (any, error) {
	want, err := wanted(r)
	if err == nil && len(want) == 0 {
		err = badRequest{errors.New("body: expected lanes, as a file for isolane plan -f has them")}
	}
	if err != nil {
		return nil, err
	}
	l, err := lanes.Look(s.a.o.Lanes)
	if err != nil {
		return nil, err
	}
	p, _, err := l.Want(want, false)
	return p, err
}

// yes returns a boolean parameter of a request; a missing one is false.
func yes(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	is, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		err = badRequest{fmt.Errorf("%s=%.40q: expected true or false", name, text)}
	}
	return is, err
}

// open locks the lanes in order to change them. The request waits for that.
func (s *server) open(r *http.Request) (*lanes.Lanes, error) {
	l, expired, err := lanes.OpenPatiently(r.Context(), s.a.o.Lanes)
	for _, name := range expired {
		s.a.o.Log.WarnContext(r.Context(), "released, as the isolane run that made it has ended", "lane", name)
	}
	return l, err
}

func (s *server) apply(r *http.Request) (any, error) {
	prune, err := yes(r, "prune")
	if err != nil {
		return nil, err
	}
	want, err := wanted(r)
	if err == nil && prune && len(want) == 0 {
		err = badRequest{errors.New("prune: expected in the body the lanes that stay")}
	}
	if err != nil {
		return nil, err
	}
	l, err := s.open(r)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err = l.Recorded(); err != nil {
		return nil, err
	}
	if len(want)+len(l.Placement.Lanes) == 0 {
		return nil, badRequest{errors.New("no lanes are in force: expected some in the body")}
	}
	defer s.a.status.forget()
	a, err := l.PutLanes(r.Context(), want, prune)
	if err == nil {
		s.did(r, Applied, a.Change.Added...)
		s.did(r, Released, a.Change.Removed...)
		for _, m := range a.Change.Moved {
			s.did(r, Moved, m.Lane)
		}
	}
	return a, err
}

// did records who has asked for a change. The next reading reports the change itself.
func (s *server) did(r *http.Request, what string, names ...string) {
	p, is := r.Context().Value(peerKey{}).(*peer)
	if !is {
		return
	}
	for _, name := range names {
		s.a.history.keep(Event{At: time.Now(), What: what, Lane: name, Text: r.Method + " " + r.URL.Path,
			By: fmt.Sprintf("user %d (process %d)", p.uid, p.pid)})
	}
}

func (s *server) release(r *http.Request) (any, error) {
	names := r.URL.Query()["lane"]
	all, err := yes(r, "all")
	if err == nil && all == (len(names) > 0) {
		err = badRequest{errors.New("expected ?lane=NAME, or ?all=true")}
	}
	if err != nil {
		return nil, err
	}
	l, err := s.open(r)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer s.a.status.forget()
	if all {
		names = l.Names()
	}
	released, err := l.Release(r.Context(), names...)
	if err == nil {
		s.did(r, Released, names...)
	}
	return released, err
}

// events sends events as they come.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	some := s.a.streams.add()
	defer s.a.streams.remove(some)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	for e := json.NewEncoder(w); c.Flush() == nil; {
		select {
		case <-r.Context().Done():
			return
		case event, more := <-some:
			if !more || c.SetWriteDeadline(time.Now().Add(answerTime)) != nil || e.Encode(event) != nil {
				return
			}
		}
	}
}

// cache has the last status. Requests at the same time share it.
type cache struct {
	changed atomic.Bool // since the status was read
	mu      sync.Mutex
	at      time.Time
	last    enforce.Status
}

// forget makes the next get read a new status.
func (c *cache) forget() { c.changed.Store(true) }

// get returns a status that is at most age old, and not older than the last change by this process.
func (c *cache) get(ctx context.Context, o lanes.Options, age time.Duration) (enforce.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.changed.Swap(false)
	if !changed && time.Since(c.at) <= age {
		return c.last, nil
	}
	c.at = time.Time{} // what was known is no answer any more, also where this one fails
	lanes.Settled(ctx, o.Dir, changed)
	l, err := lanes.Look(o)
	if err != nil {
		return enforce.Status{}, err
	}
	s, err := l.Status(ctx)
	if err == nil {
		c.at, c.last = time.Now(), s
	}
	return s, err
}
