package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/up"
)

// A hub on an existing Kubernetes: hosts join it with certificates that the cluster signs, and Apps run. A
// user without rights is refused, and nothing is made.
func TestExisting(t *testing.T) {
	f := unstarted(t)
	o := up.Options{Dir: f.file("cluster"), Programs: f.programs, Host: "127.0.0.1", Port: f.port,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cluster, err := up.Start(t.Context(), o) // etcd and an API server, with nothing of ours
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if eerr := cluster.End(); eerr != nil {
			t.Error(eerr)
		}
	})
	f.administer(t, cluster.Kubeconfig)
	poor := kubeconfigOf(t, cluster, f.file("poor"), pkix.Name{CommonName: "poor"})
	out, err := exec.Command(f.binary, "up", "--kubeconfig", poor).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--kubeconfig: its user may not create customresourcedefinitions") {
		t.Errorf("a user without rights: %s%v", out, err)
	}
	kinds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	made, err := f.client.Resource(kinds).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(made.Items) > 0 {
		t.Errorf("kinds were made: %v, %v", made, err)
	}
	manager := exec.Command(filepath.Join(f.programs, "kube-controller-manager"), "--kubeconfig="+cluster.Kubeconfig,
		"--controllers=certificatesigningrequest-signing-controller", "--leader-elect=false", "--secure-port=0",
		"--cluster-signing-cert-file="+filepath.Join(o.PKI(), "hub.crt"), "--cluster-signing-key-file="+filepath.Join(o.PKI(), "hub.key"))
	if err = manager.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = manager.Process.Kill() // it ends in no other way
		_ = manager.Wait()
	})
	hub := f.start(t, "hub", "up", "--kubeconfig", cluster.Kubeconfig)
	f.up, f.join = hub, f.joining(t, "hub")
	if !slices.Contains(f.join, "--authority") {
		t.Errorf("join: %q; expected the authority in it", f.join)
	}
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	f.agent(t)
	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	f.app(t, "default", "web", "Running")
	again := strings.Fields(f.run(t, "token", "--kubeconfig", cluster.Kubeconfig, "elsewhere"))
	if len(again) != 8 || again[6] != "--authority" || again[5] == f.join[3] {
		t.Errorf("token: %q", again)
	}
	f.deleteApp(t, "web")
}

// kubeconfigOf writes a file for another user of a hub.
func kubeconfigOf(t *testing.T, h *up.Hub, file string, who pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := h.Authority.SignClient(who, &key.PublicKey, time.Hour, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.LoadFromFile(h.Kubeconfig)
	if err == nil {
		c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert,
			ClientKeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
		err = clientcmd.WriteToFile(*c, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// issuer is a provider of OpenID Connect, which says about each user what the test wants.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	public, err := key.PublicKey.Bytes() // 4, and both coordinates
	if err != nil {
		t.Fatal(err)
	}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q, "id_token_signing_alg_values_supported": ["ES256"]}`, i.URL, i.URL+"/keys")
			return
		}
		fmt.Fprintf(w, `{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": %q, "y": %q}]}`,
			base64.RawURLEncoding.EncodeToString(public[1:33]), base64.RawURLEncoding.EncodeToString(public[33:]))
	}))
	t.Cleanup(i.Close)
	return i
}

// token returns a token for somebody that is valid for some time.
func (i *issuer) token(t *testing.T, who, group string, life time.Duration) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"iss": i.URL, "aud": "isolane-hub", "sub": who, "groups": []string{group},
		"iat": time.Now().Add(-time.Hour).Unix(), "exp": time.Now().Add(life).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"one","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// People authenticate with OpenID Connect: a group gets a role in its tenant's namespace and nothing
// elsewhere. A token that has expired, or is from another signer, is worth nothing. The audit log has what
// they do, as the policy of deploy/hub says.
func TestPeople(t *testing.T) {
	f := unstarted(t)
	known := newIssuer(t)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: known.Certificate().Raw})
	authentication, err := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer": map[string]any{"url": known.URL, "audiences": []string{"isolane-hub"}, "certificateAuthority": string(authority)},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": "oidc:"},
				"groups": map[string]any{"claim": "groups", "prefix": "oidc:"}}}}})
	if err == nil {
		err = os.WriteFile(f.file("authentication.json"), authentication, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(f.binary, "up", "--dir", f.file("hub"), "--programs", f.programs, "--audit", f.file("none")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--audit: expected a file of Kubernetes") {
		t.Errorf("a policy that is not there: %s%v", out, err)
	}
	f.more = []string{"--authentication", f.file("authentication.json"), "--audit", "../../../deploy/hub/audit.yaml"}
	f.up, f.join = f.hub(t, "hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
	_, err = f.core.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "acme"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "isolane:tenant-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "oidc:acme"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lists := func(token, space string) error {
		c := rest.AnonymousClientConfig(f.admin)
		c.BearerToken = token
		_, client, cerr := clients(c)
		if cerr == nil {
			_, cerr = client.Resource(api.Resource("apps")).Namespace(space).List(context.Background(), metav1.ListOptions{})
		}
		return cerr
	}
	until(t, "somebody of the group lists the Apps of the tenant", func() error {
		return lists(known.token(t, "ann", "acme", time.Hour), "default")
	})
	if err = lists(known.token(t, "ann", "acme", time.Hour), "other"); !apierrors.IsForbidden(err) {
		t.Errorf("Apps of another namespace: %v", err)
	}
	if err = lists(known.token(t, "bob", "others", time.Hour), "default"); !apierrors.IsForbidden(err) {
		t.Errorf("somebody of another group: %v", err)
	}
	if err = lists(known.token(t, "ann", "acme", -time.Minute), "default"); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that has run out: %v", err)
	}
	forged := newIssuer(t)
	forged.URL = known.URL
	if err = lists(forged.token(t, "ann", "acme", time.Hour), "default"); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of another key: %v", err)
	}
	until(t, "it is written down", func() error {
		said, rerr := os.ReadFile(filepath.Join(f.file("hub"), "log", "audit.log"))
		if rerr == nil && !strings.Contains(string(said), `"username":"oidc:ann"`) {
			rerr = errors.New("nothing of ann")
		}
		if rerr == nil && strings.Contains(string(said), `"resource":"leases"`) {
			t.Error("it has Leases, which are written all the time")
		}
		return rerr
	})
}

// unstarted returns a fleet whose hub does not run yet.
func unstarted(t *testing.T) *fleet {
	t.Helper()
	return &fleet{bench: newBench(t)}
}
