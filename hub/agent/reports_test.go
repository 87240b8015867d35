package agent

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// Reports have a connection of their own, which goes when nothing is to be reported, and comes back.
func TestReportsConnection(t *testing.T) {
	var asked []string
	var spoke sync.Map // open connections that were not for joining, by the host's address
	closed := make(chan struct{}, 10)
	open := func() (n int) {
		spoke.Range(func(_, _ any) bool { n++; return true })
		return n
	}
	authority := signed(t, time.Now().Add(-time.Hour), 24*time.Hour)
	sign := signs(t, authority, &asked)
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.URL.Path, "/certificates.k8s.io/") {
			spoke.Store(r.RemoteAddr, true)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
			sign(w, r)
		case strings.HasSuffix(r.URL.Path, "/hosts/one"):
			fmt.Fprint(w, `{"apiVersion":"isolane.dev/v1alpha1","kind":"Host","metadata":{"name":"one"}}`)
		default:
			fmt.Fprint(w, `{"apiVersion":"isolane.dev/v1alpha1","kind":"InstanceList","metadata":{},"items":[]}`)
		}
	}))
	hub.TLS = &tls.Config{Certificates: []tls.Certificate{authority}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}
	hub.EnableHTTP2 = true
	hub.Config.ConnState = func(c net.Conn, is http.ConnState) {
		if is != http.StateClosed {
			return
		}
		if _, was := spoke.LoadAndDelete(c.RemoteAddr().String()); was {
			closed <- struct{}{}
		}
	}
	hub.StartTLS()
	defer hub.Close()
	o := Options{Dir: filepath.Join(t.TempDir(), "agent"), Log: slog.New(slog.DiscardHandler)}
	if err := Join(t.Context(), o, Hub{URL: hub.URL, Token: sites.Token{Authority: up.Digest(hub.Certificate())}}, "one"); err != nil {
		t.Fatal(err)
	}
	a, err := begin(o)
	if err == nil {
		err = a.dial()
	}
	if err != nil {
		t.Fatal(err)
	}
	speak := func() {
		t.Helper()
		if _, err = a.server.resource("instances").List(t.Context(), metav1.ListOptions{}); err == nil {
			_, err = a.server.resource("hosts").Get(t.Context(), "one", metav1.GetOptions{})
		}
		if err != nil || open() != 2 {
			t.Fatalf("%d connections, expected 2, %v", open(), err)
		}
	}
	speak()
	a.server.rest()
	select {
	case <-closed:
	case <-time.After(time.Minute):
	}
	if open() != 1 {
		t.Fatalf("%d connections stay, expected 1", open())
	}
	speak()
}
