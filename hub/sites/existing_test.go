package sites_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/sites"
)

// A Kubernetes that is too old, or a user without rights, is refused with the flag and the remedy, and
// nothing is made.
func TestCheck(t *testing.T) {
	for _, row := range []struct{ name, version, denied, says string }{
		{"good", "v1.30.0", "", ""},
		{"too old", "v1.29.9", "", "--kubeconfig: expected Kubernetes 1.30 or newer, found v1.29.9"},
		{"no version", "", "", "expected Kubernetes 1.30 or newer"},
		{"without rights", "v1.37.1", `"resource":"signers"`, "--kubeconfig: its user may not approve signers.certificates.k8s.io: " +
			"expected one with the rights of ClusterRole cluster-admin"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch asked, err := io.ReadAll(r.Body); {
				case err != nil:
					t.Error(err)
				case r.URL.Path == "/version":
					fmt.Fprintf(w, `{"gitVersion": %q}`, row.version)
				case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
					may := row.denied == "" || !strings.Contains(string(asked), row.denied)
					fmt.Fprintf(w, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": %v}}`, may)
				default:
					t.Errorf("it asks for %s %s", r.Method, r.URL.Path)
				}
			}))
			defer server.Close()
			core, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL,
				ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
			if err != nil {
				t.Fatal(err)
			}
			err = sites.Check(t.Context(), core)
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, expected %q", err, row.says)
			}
		})
	}
}
