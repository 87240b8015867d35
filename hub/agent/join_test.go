package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// A host that a hub refuses is as before. It keeps its key if the hub may have admitted it, and the key that
// it had.
func TestJoinRefused(t *testing.T) {
	deny := func(w http.ResponseWriter, _ *http.Request) {
		var asked certificatesv1.CertificateSigningRequest
		asked.APIVersion, asked.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
		asked.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateDenied, Message: "the token was used already"}}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(asked); err != nil {
			t.Error(err)
		}
	}
	var asked []string
	admits := signs(t, signed(t, time.Now().Add(-time.Hour), 24*time.Hour), &asked)
	once := func(w http.ResponseWriter, r *http.Request) { // with the token, and nothing more
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusForbidden)
		} else {
			admits(w, r)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		had    string // a file that exists before
		says   string
		left   []string
	}{
		{"a wrong token", status(http.StatusUnauthorized), "", "expected a token that is new and not used", nil},
		{"a token that was used", deny, "", "the hub refuses: the token was used already", nil},
		{"a folder that was there", deny, "notes", "the hub refuses", []string{"notes"}},
		{"a hub with an error", status(http.StatusInternalServerError), "", "the hub takes no request", []string{"host.key"}},
		{"a hub that has let it in", once, "", "its key is kept: expected isolane-hub join again, with a new token: the hub", []string{"host.key"}},
		{"a key that was there", deny, "host.key", "the hub refuses", []string{"host.key"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := httptest.NewTLSServer(row.answer)
			defer server.Close()
			o := Options{Dir: filepath.Join(t.TempDir(), "agent")}
			if row.had != "" {
				if err := os.Mkdir(o.Dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if _, err := makeKey(o.file(row.had)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := Join(ctx, o, Hub{URL: server.URL, Token: sites.Token{Authority: up.Digest(server.Certificate())}}, "one")
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, expected %s", err, row.says)
			}
			left, _ := filepath.Glob(filepath.Join(o.Dir, "*")) // the pattern is valid
			for i, name := range left {
				left[i] = filepath.Base(name)
			}
			_, gone := os.Stat(o.Dir)
			if strings.Join(left, " ") != strings.Join(row.left, " ") || (gone != nil) != (row.left == nil) {
				t.Errorf("%v are left, folder: %v; expected %v", left, gone, row.left)
			}
		})
	}
}

// A folder that cannot be made or written is named with its flag, and the hub is asked for nothing.
func TestJoinNowhere(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the hub was asked") }))
	defer server.Close()
	for dir, says := range map[string]string{
		"/proc/none/agent": "--dir /proc/none/agent: expected a folder that can be made: ",
		"/proc":            "--dir /proc: expected a disk that has room and can be written: no such file or directory; the token is not used up",
	} {
		err := Join(t.Context(), Options{Dir: dir}, Hub{URL: server.URL, Token: sites.Token{Authority: up.Digest(server.Certificate())}}, "one")
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("found %v, expected %s", err, says)
		}
	}
}

// signs is a hub that signs every request. asked gets who asked for which certificate.
func signs(t *testing.T, authority tls.Certificate, asked *[]string) http.HandlerFunc {
	t.Helper()
	sign := func(w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		var c certificatesv1.CertificateSigningRequest
		if _, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &c); err != nil {
			return err
		}
		c.APIVersion, c.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
		block, _ := pem.Decode(c.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return err
		}
		by := "token"
		if len(r.TLS.PeerCertificates) > 0 {
			by = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		*asked = append(*asked, by+" "+request.Subject.CommonName)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: request.Subject,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, authority.Leaf, request.PublicKey, authority.PrivateKey)
		if err != nil {
			return err
		}
		c.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		return json.NewEncoder(w).Encode(c)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := sign(w, r); err != nil {
			t.Error(err)
		}
	}
}

// fakeHub signs what a host asks for, and accepts no host's own certificate.
func fakeHub(t *testing.T, asked *[]string) *httptest.Server {
	t.Helper()
	authority := signed(t, time.Now().Add(-time.Hour), 24*time.Hour)
	sign := signs(t, authority, asked)
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/certificatesigningrequests") {
			w.WriteHeader(http.StatusUnauthorized)
		} else {
			sign(w, r)
		}
	}))
	hub.TLS = &tls.Config{Certificates: []tls.Certificate{authority}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}
	hub.StartTLS()
	t.Cleanup(hub.Close)
	return hub
}

// A host has both certificates from the beginning, and can renew with the second even before it has followed
// its hub once, because it may have been away for long. If a URL is silent until the time is over, it goes on
// to another one.
func TestJoinThenAway(t *testing.T) {
	var asked []string
	hub := fakeHub(t, &asked)
	o := Options{Dir: filepath.Join(t.TempDir(), "agent"), Log: slog.New(slog.DiscardHandler)}
	if err := Join(t.Context(), o, Hub{URL: hub.URL, Token: sites.Token{Authority: up.Digest(hub.Certificate())}}, "one"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"token " + api.User("one"), api.User("one") + " " + api.Renewer("one")}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, expected %q", asked, want)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and stays silent
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a, err := begin(o)
	if err != nil {
		t.Fatal(err)
	}
	a.joined.URL, a.joined.Others, asked = "https://"+silent.Addr().String(), []string{hub.URL}, nil
	if err = a.dial(); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err = a.talkToAny(brief); err == nil || a.joined.URL != hub.URL {
		t.Errorf("the next talk is with %s, expected %s, %v", a.joined.URL, hub.URL, err)
	}
	err = a.talkToAny(t.Context())
	if want := []string{api.Renewer("one") + " " + api.User("one"), api.Renewer("one") + " " + api.Renewer("one")}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, expected %q, %v", asked, want, err)
	}
	a.renewed = time.Time{}
	for range 2 { // a client that reads the certificate anew, as once a second at most, closes the connection that it begins
		if err = a.replace(t.Context(), a.server.core, certificate{"none/host.crt", api.User, api.Hosts}); !errors.Is(err, net.ErrClosed) {
			break
		}
	}
	if err == nil || !a.askedLately(time.Hour) {
		t.Errorf("a certificate that cannot be kept is asked for again at once, %v", err)
	}
}
