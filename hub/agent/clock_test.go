package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// A host's clock is compared with the hub's answers: months ahead or behind are reported, some seconds are
// not, and the reported difference stays while it is about the same.
func TestClock(t *testing.T) {
	a := &Agent{}
	var behind time.Duration // of the hub's clock
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
	}))
	defer hub.Close()
	client := &http.Client{Transport: a.clock.listen(http.DefaultTransport)}
	const month = 30 * 24 * time.Hour
	for _, c := range []struct {
		behind  time.Duration
		changes bool
		says    string
	}{
		{0, false, ""},
		{20 * time.Second, false, ""},
		{2 * month, true, "the clock of this host is 60 days ahead of the hub's"},
		{2*month + 20*time.Second, false, "the clock of this host is 60 days ahead of the hub's"},
		{-2 * month, true, "the clock of this host is 60 days behind the hub's"},
		{45 * time.Second, true, "the clock of this host is 1m ahead of the hub's"},
		{20 * time.Second, true, ""},
	} {
		behind = c.behind
		answer, err := client.Get(hub.URL)
		if err != nil {
			t.Fatal(err)
		}
		if err = answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if is := a.clockMoved(); is != c.changes || a.clockDifference() != c.says {
			t.Errorf("%s: changes %t, says %q; expected %t, %q", c.behind, is, a.clockDifference(), c.changes, c.says)
		}
		if off := time.Since(a.clock.hub()) - c.behind; off.Abs() > 10*time.Second {
			t.Errorf("%s: the hub's time is off by %s", c.behind, off)
		}
	}
}

// signed returns a self-signed certificate for 127.0.0.1.
func signed(t *testing.T, from time.Time, life time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(life), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: c}
}

// The hub's clock decides when a certificate is due: a host whose clock is two months ahead asks for none.
func TestDue(t *testing.T) {
	hub := httptest.NewServer(http.NotFoundHandler())
	hub.Close() // any request gets an error
	a := &Agent{o: Options{Dir: t.TempDir()},
		server: &server{core: kubernetes.NewForConfigOrDie(&rest.Config{Host: hub.URL})}}
	if err := os.Mkdir(a.o.hub(""), 0o700); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	c := signed(t, time.Now().Add(-61*day), 7*day)
	for _, of := range []certificate{own(), renewal()} {
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Leaf.Raw})
		if err := os.WriteFile(a.o.hub(of.file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for ahead, asks := range map[time.Duration]bool{60 * day: false, 0: true, 55 * day: true} {
		a.clock.ahead.Store(int64(ahead))
		if err := a.renew(t.Context()); (err != nil) != asks {
			t.Errorf("%s ahead: %v; expected that it asks: %t", ahead, err, asks)
		}
	}
}

// If a hub takes neither certificate, as after more than 90 days without the host, people at the site are told what to do.
func TestBothExpired(t *testing.T) {
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer hub.Close()
	a := &Agent{o: Options{Dir: t.TempDir()}, joined: joined{URL: hub.URL, Name: "one"}}
	const day = 24 * time.Hour
	old := signed(t, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), 7*day)
	key, err := x509.MarshalPKCS8PrivateKey(old.PrivateKey)
	err = errors.Join(err, os.Mkdir(a.o.hub(""), 0o700))
	for file, block := range map[string]*pem.Block{
		a.o.hub(own().file): {Type: "CERTIFICATE", Bytes: old.Leaf.Raw}, a.o.hub(renewal().file): {Type: "CERTIFICATE", Bytes: old.Leaf.Raw},
		a.o.hub("hub.crt"): {Type: "CERTIFICATE", Bytes: hub.Certificate().Raw}, a.o.file("host.key"): {Type: "PRIVATE KEY", Bytes: key},
	} {
		err = errors.Join(err, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	err = a.explainSilence(t.Context(), apierrors.NewUnauthorized("expired"))
	const want = "is not let in: the hub takes neither certificate of this host, valid until 2026-03-08 and 2026-03-08; "
	if !apierrors.IsUnauthorized(err) || !strings.HasPrefix(a.said, want) || !strings.HasSuffix(a.said, "with a new token, joins again") {
		t.Errorf("found %v, %q; expected %s", err, a.said, want)
	}
}

// If another hub than the one that this host has joined is at its address, people at the site are told.
func TestEstranged(t *testing.T) {
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	other.StartTLS()
	defer other.Close()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}}}
	r, err := client.Get(other.URL)
	if err == nil {
		t.Fatal(r.Body.Close())
	}
	if says := explainStranger(err); !strings.Contains(says, "another hub has its address") {
		t.Errorf("%v: found %q", err, says)
	}
}

// If the hub's certificate is not valid at this host's time, the host is told to check its clock.
func TestUntimely(t *testing.T) {
	for from, ok := range map[time.Duration]bool{-time.Hour: true, -3 * time.Hour: false, time.Hour: false} {
		hub := httptest.NewUnstartedServer(http.NotFoundHandler())
		hub.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		c := signed(t, time.Now().Add(from), 2*time.Hour)
		hub.TLS = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13}
		hub.StartTLS()
		defer hub.Close()
		_, err := Hub{URL: hub.URL, Token: sites.Token{Authority: up.Digest(c.Leaf)}}.recognize(t.Context())
		if ok != (err == nil) {
			t.Errorf("valid from %s: %v", from, err)
		}
		if want := "expected the clock of this host to be right, found 20"; !ok && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("valid from %s: %v; expected %s", from, err, want)
		}
	}
}

// A hub that has just started may let nobody do anything for a moment. Only a host that it still refuses later is told that
// it was revoked.
func TestBarred(t *testing.T) {
	a := &Agent{joined: joined{Name: "one"}}
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "hosts"}, "one", errors.New("no rights"))
	for _, row := range []struct {
		since time.Time
		said  string
	}{{time.Time{}, "does not reach the hub"}, {time.Now().Add(-talkInterval), "does not reach the hub"},
		{time.Now().Add(-time.Minute), "is not let in"}} {
		a.barred = row.since
		u, is := errors.AsType[unreached](a.explainSilence(t.Context(), no))
		if !is || u.said != row.said {
			t.Errorf("barred since %s: %q, %s; expected %s", row.since, u.said, u.why, row.said)
		}
	}
}
