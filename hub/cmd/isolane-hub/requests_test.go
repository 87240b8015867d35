package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
)

// hubAlone returns a hub that no host follows, and its administrator.
func hubAlone(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{bench: withoutHost(t)}
	f.up, f.join = f.hub(t, "hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
	return f
}

// However an App is deleted, it goes: there is no garbage collector, so nothing waits for one.
func TestCascade(t *testing.T) {
	f := hubAlone(t)
	apps := f.resource("apps", "default")
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground} {
		f.make(t, "apps", "App", "default", "web", spec(1, nil))
		f.app(t, "default", "web", "Pending")
		if err := apps.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
			t.Fatal(how, err)
		}
		f.gone(t, "the App, deleted as "+string(how), func() error {
			_, err := apps.Get(t.Context(), "web", metav1.GetOptions{})
			return err
		})
	}
}

// Impossible requests of people, hosts and programs are refused with the reason, and the hub goes on.
func TestBadInput(t *testing.T) {
	f := hubAlone(t)
	t.Run("join", f.badJoins)
	t.Run("certificate of another hub", f.stranger)
	t.Run("object", f.badObjects)
	t.Run("quota", f.lateQuota)
	t.Run("sites of a quota", f.otherSites)
	t.Run("prune", f.prune)
	t.Run("scale", f.scale)
	if f.run(t, "findings", "--dir", f.file("hub")); f.up.ProcessState != nil {
		t.Error("the hub has ended")
	}
}

// badJoins: nothing is left of hosts that are refused.
func (f *fleet) badJoins(t *testing.T) {
	joined := append(slices.Clone(f.join), "--name", "one", "--dir", f.file("one"))
	f.run(t, joined...)
	changed := func(by func(parts []string)) []string {
		args := f.token(t)
		parts := strings.Split(args[3], ".")
		by(parts)
		args[3] = strings.Join(parts, ".")
		return args
	}
	for _, row := range []struct {
		name, host, says string
		args             []string
	}{
		{"two hosts of one name", "one", "there is a host one already, with another key: expected another --name", f.token(t)},
		{"a token that was used", "two", "the token was used already: expected a new one", f.join},
		{"a wrong token", "two", "expected a token that is new and not used", changed(func(p []string) { p[1] = strings.Repeat("0", 16) })},
		{"another hub", "two", "it is not the hub of this token", changed(func(p []string) { p[2] = strings.Repeat("A", 43) })},
		{"a name that is none", "no_name", "expected --name with at most 58 of a-z, 0-9 and -", f.token(t)},
	} {
		dir := f.file("refused")
		out, err := exec.Command(f.binary, append(slices.Clone(row.args), "--name", row.host, "--dir", dir)...).CombinedOutput()
		if text := string(out); err == nil || !strings.Contains(text, row.says) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %s%v; expected %s", row.name, out, err, row.says)
		}
		if _, err = os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: something is left, %v", row.name, err)
		}
	}
	list, err := f.resource("hosts", "").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%d hosts, %v; expected one", len(list.Items), err)
	}
}

// stranger: a host's certificate by an authority other than the hub's.
func (f *fleet) stranger(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject:     pkix.Name{CommonName: api.User("one"), Organization: []string{api.Hosts}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	private, kerr := x509.MarshalPKCS8PrivateKey(key)
	if err != nil || kerr != nil {
		t.Fatal(err, kerr)
	}
	own := rest.AnonymousClientConfig(f.admin)
	own.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	own.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	if _, err = instances(t, own, "one").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("found %v, expected it to be unauthorized", err)
	}
}

// badObjects: the API server rejects malformed objects, the hub impossible lanes.
func (f *fleet) badObjects(t *testing.T) {
	object := func(more map[string]any) map[string]any {
		u := map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "App",
			"metadata": map[string]any{"name": "wrong"}, "spec": spec(1, nil)}
		maps.Copy(u, more)
		return u
	}
	for _, row := range []struct {
		name, says string
		object     map[string]any
	}{
		{"an unknown field", `unknown field "spec.replica"`, object(map[string]any{"spec": spec(1, map[string]any{"replica": 2})})},
		{"a number that is none", "spec.replicas", object(map[string]any{"spec": spec(1, map[string]any{"replicas": "two"})})},
		{"100 MB", "limit is 3145728", object(map[string]any{"metadata": map[string]any{"name": "wrong",
			"annotations": map[string]any{"large": strings.Repeat("x", 100e6)}}})},
	} {
		u, err := api.To(row.object)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.resource("apps", "default").Create(t.Context(), u, metav1.CreateOptions{FieldValidation: "Strict"})
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %.300v; expected %s", row.name, err, row.says)
		}
	}
	for _, row := range []struct {
		resource, kind, space, name, says string
		spec                              map[string]any
	}{
		{"tenants", "Tenant", "", "wrong", "spec.memory in body should match", map[string]any{"memory": "64 gigabytes"}},
		{"tenants", "Tenant", "", "wrong", "spec.sites[0] in body should match", map[string]any{"sites": []any{"East 1"}}},
		{"sites", "Site", "", "east.1", "expected a name of at most 63 characters without dots", nil},
		{"hosts", "Host", "host-one", "one", "spec.site in body should match", map[string]any{"site": "East 1"}},
		{"hosts", "Host", "default", "one", "metadata.namespace: expected host-NAME of a host, found default", map[string]any{"site": "east"}},
		{"instances", "Instance", "default", "web", "metadata.namespace: expected host-NAME of a host, found default", spec(1, nil)},
	} {
		u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": row.kind,
			"metadata": map[string]any{"name": row.name}, "spec": row.spec})
		if err == nil {
			_, err = f.resource(row.resource, row.space).Create(t.Context(), u, metav1.CreateOptions{})
		}
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s %s/%s: %v; expected %s", row.kind, row.space, row.name, err, row.says)
		}
	}
	long := strings.Repeat("x", 60)
	f.make(t, "apps", "App", "default", long, spec(1, nil))
	f.app(t, "default", long, "Refused", "metadata.name: expected at most 55 characters")
	f.delete(t, "default", long)
	f.make(t, "apps", "App", "default", "wrong", spec(1, map[string]any{"lane": map[string]any{
		"cpus": map[string]any{"count": 1, "speed": 3}}}))
	f.app(t, "default", "wrong", "Refused", "spec.lane.cpus.speed: unknown field: expected count, ")
	f.delete(t, "default", "wrong")
}

func (f *fleet) delete(t *testing.T, space, app string) {
	t.Helper()
	all := f.resource("apps", space)
	if err := all.Delete(t.Context(), app, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.gone(t, app, func() error {
		_, err := all.Get(t.Context(), app, metav1.GetOptions{})
		return err
	})
}

// lateQuota: a quota below what is used refuses more, and ends nothing.
func (f *fleet) lateQuota(t *testing.T) {
	has := f.instance(t, "default", "used")
	f.make(t, "apps", "App", "default", "used", spec(1, nil))
	f.app(t, "default", "used", "Starting")
	f.make(t, "tenants", "Tenant", "", "default", map[string]any{"cpus": 0})
	f.make(t, "apps", "App", "default", "more", spec(1, nil))
	f.app(t, "default", "more", "Refused", "tenant default may have 0 CPUs")
	_, err := f.resource("apps", "default").Patch(t.Context(), "used", types.MergePatchType, []byte(`{"spec": {"replicas": 2}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "used", "Refused", "tenant default may have 0 CPUs")
	if i := f.there(t, has); i != "" {
		t.Error(i)
	}
	until(t, "the tenant reads it", func() error {
		u, err := f.resource("quotas", "default").Get(t.Context(), "tenant", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q, err := api.From[api.Quota](u)
		if err == nil && (q.Spec.CPUs == nil || *q.Spec.CPUs != 0 || q.Status.Used.CPUs != 1) {
			t.Errorf("found %+v", q)
		}
		return err
	})
	f.delete(t, "default", "more")
	if err := f.resource("tenants", "").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// instance makes what the hub makes for an App, at host one, which does not answer.
func (f *fleet) instance(t *testing.T, space, app string) string {
	t.Helper()
	name := space + "." + app
	u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "Instance",
		"metadata": map[string]any{"name": name, "labels": map[string]any{api.AppOf: name, api.TenantOf: space}},
		"spec":     spec(1, map[string]any{"tenant": space})})
	if err == nil {
		_, err = f.resource("instances", api.Namespace("one")).Create(t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// there says what is wrong with an Instance that nobody has ended.
func (f *fleet) there(t *testing.T, name string) string {
	t.Helper()
	u, err := f.resource("instances", api.Namespace("one")).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if u.GetDeletionTimestamp() != nil {
		return name + " was ended"
	}
	return ""
}

// otherSites: a tenant learns nothing about hosts at sites outside its quota.
func (f *fleet) otherSites(t *testing.T) {
	u, err := f.resource("hosts", api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.From[api.Host](u)
	if err != nil {
		t.Fatal(err)
	}
	machine := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}
	if h.Status.Machine, err = json.Marshal(lanes.Machine{Host: machine.Host(t)}); err != nil {
		t.Fatal(err)
	}
	if _, err = api.WriteStatus(t.Context(), f.resource("hosts", api.Namespace("one")), h); err != nil {
		t.Fatal(err)
	}
	_, err = f.core.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.make(t, "apps", "App", "acme", "before", spec(1, nil))
	f.app(t, "acme", "before", "Pending", "no host takes it: without answer")
	f.make(t, "tenants", "Tenant", "", "acme", map[string]any{"sites": []any{"elsewhere"}})
	f.make(t, "apps", "App", "acme", "web", spec(1, nil))
	f.app(t, "acme", "web", "Pending", "no host takes it: there is none where it may be")
	if why := f.run(t, "why", "--dir", f.file("hub"), "acme/web"); !strings.Contains(why, "one (default): not the tenant's") {
		t.Errorf("why: %s", why)
	}
	f.delete(t, "acme", "before")
	f.delete(t, "acme", "web")
}

// scale: kubectl changes the number of replicas.
func (f *fleet) scale(t *testing.T) {
	f.make(t, "apps", "App", "default", "many", spec(1, nil))
	out, err := exec.Command(filepath.Join(f.programs, "kubectl"), "--kubeconfig", filepath.Join(f.file("hub"), "admin.kubeconfig"),
		"scale", "app", "many", "--replicas=0").CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v", out, err)
	}
	f.app(t, "default", "many", "Running")
	f.delete(t, "default", "many")
}

// prune: kubectl deletes what it has applied and no longer has, and nothing else.
func (f *fleet) prune(t *testing.T) {
	ours := f.instance(t, "default", "ours")
	f.make(t, "apps", "App", "default", "ours", spec(1, nil))
	app := func(name string) string {
		text, err := json.Marshal(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "App", "spec": spec(1, nil),
			"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"of": "shop"}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	for name, how := range map[string][]string{
		"set":    {"--prune", "--applyset=shop", "--namespace=default"},
		"server": {"--server-side", "--prune", "--applyset=store", "--namespace=default"},
		"label":  {"--prune", "-l", "of=shop", "--prune-allowlist=isolane.dev/v1alpha1/App", "--prune-allowlist=isolane.dev/v1alpha1/Instance"},
	} {
		for _, has := range []string{app(name+"-a") + app(name+"-b"), app(name + "-b")} {
			cmd := exec.Command(filepath.Join(f.programs, "kubectl"),
				append([]string{"--kubeconfig", filepath.Join(f.file("hub"), "admin.kubeconfig"), "apply", "-f", "-"}, how...)...)
			cmd.Env = append(os.Environ(), "KUBECTL_APPLYSET=true")
			cmd.Stdin = strings.NewReader(has)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %s%v", name, out, err)
			}
		}
		f.gone(t, name+"-a", func() error {
			_, err := f.resource("apps", "default").Get(t.Context(), name+"-a", metav1.GetOptions{})
			return err
		})
		f.app(t, "default", name+"-b", "Pending")
		f.app(t, "default", "ours", "Starting")
		if wrong := f.there(t, ours); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
		f.delete(t, "default", name+"-b")
	}
}
