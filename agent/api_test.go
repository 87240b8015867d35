package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
)

// serving answers on a socket. Requests change nothing on this host, because another process holds its lock.
func serving(tb testing.TB) (socket, loopback string, log *bytes.Buffer) {
	tb.Helper()
	hosttest.Need(tb, hosttest.Root)
	o := lanes.Options{Dir: filepath.Join(tb.TempDir(), "run")}.Complete()
	j, err := journal.Open(o.Dir, "test", o.Ops)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if cerr := j.Close(); cerr != nil {
			tb.Error(cerr)
		}
	})
	log, socket = &bytes.Buffer{}, filepath.Join(tb.TempDir(), "s")
	a := &Agent{o: Options{Lanes: o, Socket: socket, Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(log, nil))}}
	s, err := a.listen()
	if err != nil {
		tb.Fatal(err)
	}
	s.serve()
	tb.Cleanup(func() {
		if cerr := s.close(); cerr != nil {
			tb.Error(cerr)
		}
	})
	return socket, s.listeners[1].Addr().String(), log
}

// send sends what may be a request, hangs up, and returns the answer; status 0: there was none.
func send(tb testing.TB, network, address string, raw []byte) (status int, body string) {
	tb.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	if err = c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	if _, err = c.Write(raw); err == nil { // otherwise the answer comes before the end of the request
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body) // fails if the agent has not read everything
	return r.StatusCode, string(text)
}

func request(method, target, body string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s", method, target, len(body), body)
}

const oneLane = "apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: web}\nspec: {cpus: {count: 4096}}\n"

// Each request of the served document has an answer, including what is wrong with it, and nothing else has
// one.
func TestRequests(t *testing.T) {
	socket, _, _ := serving(t)
	for _, c := range []struct {
		method, target, body string
		want                 int
		says                 string
	}{
		{"GET", "/v1/status", "", 200, `"kind":"Status"`},
		{"GET", "/v1/evidence", "", 200, `"kind":"Evidence"`},
		{"GET", "/v1/readings", "", 200, `"at":`},
		{"GET", "/v1/events", "", 200, ""},
		{"GET", "/metrics", "", 200, "isolane_drift 0"},
		{"GET", "/openapi.json", "", 200, `"openapi":"3.1.0"`},
		{"POST", "/v1/plan", oneLane, 409, `"kind":"Refusal"`},
		{"POST", "/v1/plan", "", 400, "expected lanes"},
		{"POST", "/v1/plan", "kind: Lane\n", 400, "body:1"},
		{"POST", "/v1/plan", "{" + strings.Repeat("[", 9999), 400, "expected YAML"},
		{"POST", "/v1/plan", strings.Repeat("#", maxBody+1), 413, "too large"},
		{"POST", "/v1/apply", oneLane, 409, "in use by"},
		{"POST", "/v1/apply?prune=perhaps", oneLane, 400, "expected true or false"},
		{"POST", "/v1/apply?prune=true", "", 400, "lanes that stay"},
		{"POST", "/v1/release", "", 400, "?lane=NAME"},
		{"POST", "/v1/release?lane=a&lane=b", "", 409, "in use by"},
		{"POST", "/v1/release?all=true", "", 409, "in use by"},
		{"POST", "/v1/release?all=true&lane=a", "", 400, "?all=true"},
		{"POST", "/v1/release?all=perhaps", "", 400, "expected true or false"},
		{"GET", "/v1/apply", "", 405, ""},
		{"DELETE", "/v1/status", "", 405, ""},
		{"GET", "/v1/nothing", "", 404, ""},
	} {
		status, body := send(t, "unix", socket, request(c.method, c.target, c.body))
		if status != c.want || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %.40q: %d %s, want %d with %s", c.method, c.target, c.body, status, body, c.want, c.says)
		}
	}
	for range 2 * maxReads { // some have to wait, and look as if their client had gone
		status, body := send(t, "unix", socket, request("GET", "/openapi.json", ""))
		whole := status == http.StatusOK && body == string(openAPI)
		if !whole && (status != http.StatusTooManyRequests || !strings.Contains(body, "keep both sides open")) {
			t.Errorf("one of many reads: %d %.100s", status, body)
		}
	}
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(openAPI, &document); err != nil {
		t.Fatal(err)
	}
	for _, r := range Routes() {
		if document.Paths[r.Path][strings.ToLower(r.Method)] == nil || len(document.Paths) != len(Routes()) {
			t.Errorf("openapi.json: %s %s: go test ./cmd/isolane -update", r.Method, r.Path)
		}
	}
}

// Whatever arrives through the socket or from users who may only read, no answer says that the agent is at
// fault, and the agent goes on. Such users get only GET.
func FuzzRequests(f *testing.F) {
	for _, r := range Routes() {
		for _, query := range []string{"", "?prune=1&lane=web", "?lane=%00&lane=../x", "?%zz"} {
			f.Add(request(r.Method, r.Path+query, oneLane))
		}
		f.Add([]byte(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkind:\r\n"))
	}
	socket, loopback, log := serving(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		for network, address := range map[string]string{"unix": socket, "tcp": loopback} {
			status, body := send(t, network, address, raw)
			protocol := status == http.StatusNotImplemented || status == http.StatusHTTPVersionNotSupported
			if status >= http.StatusInternalServerError && !protocol {
				t.Errorf("%q: %d %s", raw, status, body)
			}
			if network == "tcp" && status == http.StatusOK && bytes.HasPrefix(raw, []byte("POST ")) {
				t.Errorf("%q: %d %s from somebody who may not", raw, status, body)
			}
		}
		if strings.Contains(log.String(), "panic") {
			t.Fatalf("%q: %s", raw, log)
		}
	})
}
