package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/api"
)

// provider is a program that issues OpenID Connect tokens, made from somebody else's library.
type provider struct {
	URL       string
	Authority string // certificate that it shows
	web       *http.Client
}

// newProvider starts one for these clients. It has a user for each role, whose name is also its password, and
// who is in a group of that name and in a group that everybody is in.
func newProvider(t *testing.T, binary string, clients ...string) *provider {
	t.Helper()
	users := map[string][]string{"nobody": {"staff"}}
	for _, role := range roles() {
		users[role] = []string{"staff", role}
	}
	text, err := json.Marshal(users)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{string(text)}, clients...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it ends in no other way
		_ = cmd.Wait()
	})
	p := &provider{}
	if err = json.NewDecoder(out).Decode(p); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(p.Authority))
	p.web = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return p
}

// token returns the token of somebody who logs in to a client with a browser: the authorization code flow.
func (p *provider) token(t *testing.T, client, who string) string {
	t.Helper()
	follow := func(method, page string, form url.Values) *url.URL {
		t.Helper()
		ask, err := http.NewRequestWithContext(t.Context(), method, page, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r, err := p.web.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		at, err := r.Location()
		if err != nil {
			said, rerr := io.ReadAll(r.Body)
			t.Fatalf("%s: %s: %v", r.Status, said, errors.Join(err, rerr))
		}
		return at
	}
	const back = "http://127.0.0.1/callback"
	login := follow(http.MethodGet, p.URL+"/auth?"+url.Values{"client_id": {client}, "redirect_uri": {back}, "response_type": {"code"},
		"scope": {"openid"}, "state": {"s"}}.Encode(), nil)
	done := follow(http.MethodPost, p.URL+"/login/username", url.Values{"id": {login.Query().Get("authRequestID")}, "username": {who}, "password": {who}})
	if !done.IsAbs() {
		done.Scheme, done.Host = login.Scheme, login.Host
	}
	code := follow(http.MethodGet, done.String(), nil)
	r, err := p.web.PostForm(p.URL+"/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {code.Query().Get("code")},
		"redirect_uri": {back}, "client_id": {client}, "client_secret": {"secret"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var got struct {
		IDToken string `json:"id_token"`
	}
	said, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(said, &got)
	}
	if err != nil || got.IDToken == "" {
		t.Fatalf("%s: %s, %v", r.Status, said, err)
	}
	return got.IDToken
}

// described returns the file by which a hub authenticates people, as in docs/hub.md, for an issuer of these
// tests.
func described(t *testing.T, p *provider) []byte {
	t.Helper()
	page, err := os.ReadFile("../../../docs/hub.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: apiserver.config.k8s.io/v1\n.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/hub.md: expected an AuthenticationConfiguration")
	}
	text := bytes.Replace(block[1], []byte("https://issuer.example"), []byte(p.URL), 1)
	pem := regexp.MustCompile(`(?s)( +)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n`)
	indent := pem.FindSubmatch(text)
	if indent == nil {
		t.Fatalf("expected a certificate in %s", text)
	}
	lines := strings.TrimSpace(strings.ReplaceAll(p.Authority, "\n", "\n"+string(indent[1])))
	return pem.ReplaceAll(text, []byte(string(indent[1])+lines+"\n"))
}

// With the configuration of docs/hub.md and an independent issuer, a person's token gives exactly the rights
// of the role of its group. A token for another client, from another issuer, or that has expired, is worth
// nothing.
func TestIssuer(t *testing.T) {
	b := withoutHost(t)
	binary := b.file("issuer")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "testdata/issuer"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	p, other := newProvider(t, binary, "isolane-hub", "elsewhere"), newProvider(t, binary, "isolane-hub")
	if err := os.WriteFile(b.file("people.yaml"), described(t, p), 0o600); err != nil {
		t.Fatal(err)
	}
	b.more = []string{"--authentication", b.file("people.yaml")}
	f := &fleet{bench: b}
	f.up, _ = f.hub(t, "hub")
	f.administer(t, filepath.Join(b.file("hub"), "admin.kubeconfig"))
	bindRoles(t, f.core, "Group", func(role string) string { return "oidc:" + role })
	as := func(token string) kubernetes.Interface {
		c := rest.AnonymousClientConfig(f.admin)
		c.BearerToken, c.QPS = token, -1
		core, _, err := clients(c)
		if err != nil {
			t.Fatal(err)
		}
		return core
	}
	review := func(core kubernetes.Interface, verb, kind, space string) (bool, error) {
		kind, sub, _ := strings.Cut(kind, "/")
		r, err := core.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: space, Verb: verb, Group: api.Group, Resource: kind, Subresource: sub}}}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed, err
	}
	until(t, "the API server has the keys of the issuer", func() error {
		_, err := review(as(p.token(t, "isolane-hub", "viewer")), "get", "apps", "default")
		return err
	})
	for _, role := range append(roles(), "nobody") {
		core := as(p.token(t, "isolane-hub", role))
		exactly(t, role, func(verb, kind, space string) bool {
			is, err := review(core, verb, kind, space)
			if err != nil {
				t.Fatal(err)
			}
			return is
		})
		path := fmt.Sprintf("/apis/%s/%s/namespaces/default/apps", api.Group, api.Version)
		_, err := core.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context()) // not only what the hub reports of itself
		if may(role, "list", "apps", true) != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s lists Apps: %v", role, err)
		}
	}
	wrong := map[string]string{"another client": p.token(t, "elsewhere", "operator"), "another issuer": other.token(t, "isolane-hub", "operator")}
	if r, err := p.web.Get(p.URL + "/life?of=-1m"); err != nil || r.Body.Close() != nil {
		t.Fatal(err)
	}
	wrong["a minute ago"] = p.token(t, "isolane-hub", "operator")
	for name, token := range wrong {
		if _, err := review(as(token), "get", "apps", "default"); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token of %s: %v, expected that it is nobody's", name, err)
		}
	}
}
