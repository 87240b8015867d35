package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// A host that a hub refuses is as it was before. It keeps its key where the hub may have let it in, and the one that it had.
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
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		had    string // a file that is there before
		says   string
		left   []string
	}{
		{"a wrong token", status(http.StatusUnauthorized), "", "expected a token that is new and not used", nil},
		{"a token that was used", deny, "", "the hub refuses: the token was used already", nil},
		{"a folder that was there", deny, "notes", "the hub refuses", []string{"notes"}},
		{"a hub with an error", status(http.StatusInternalServerError), "", "the hub takes no request", []string{"host.key"}},
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
			left, _ := filepath.Glob(filepath.Join(o.Dir, "*")) // its pattern is none that can be wrong
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

// A folder that cannot be made is named with its flag.
func TestJoinNowhere(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	o := Options{Dir: "/proc/none/agent"}
	err := Join(t.Context(), o, Hub{URL: server.URL, Token: sites.Token{Authority: up.Digest(server.Certificate())}}, "one")
	if err == nil || !strings.HasPrefix(err.Error(), "--dir /proc/none/agent: expected a folder that can be made") {
		t.Errorf("found %v", err)
	}
}
