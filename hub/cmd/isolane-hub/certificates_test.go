package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/api"
)

// certificate returns one of the host's present certificates.
func (f *fleet) certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.file("agent"), "hub", name))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s: %s", name, data)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// another waits until the host has a different certificate for the same key.
func (f *fleet) another(t *testing.T, old *x509.Certificate) (now *x509.Certificate) {
	t.Helper()
	until(t, "the certificate is renewed", func() error {
		if now = f.certificate(t, "host.crt"); now.Equal(old) {
			return fmt.Errorf("it has that until %s", now.NotAfter)
		}
		return nil
	})
	if string(now.RawSubjectPublicKeyInfo) != string(old.RawSubjectPublicKeyInfo) || now.Subject.String() != old.Subject.String() {
		t.Errorf("found a certificate for %s with another key, or who is it", now.Subject)
	}
	return now
}

// outrun waits until a certificate has expired.
func outrun(t *testing.T, c *x509.Certificate) {
	t.Helper()
	until(t, "the certificate has run out", func() error {
		if left := time.Until(c.NotAfter); left > 0 {
			return fmt.Errorf("in %s", left)
		}
		return nil
	})
}

// A certificate is renewed before it expires. One that expired while the host was away is renewed with the
// same key, unless the hub no longer has the host. What runs goes on all the time.
func TestCertificates(t *testing.T) {
	long(t)
	f := unstarted(t)
	f.more = []string{"--certificates", "25s"}
	f.up, f.join = f.hub(t, "hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	agent := f.agent(t)
	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	f.app(t, "default", "web", "Running")
	first := running(t, "default.web")

	second := f.another(t, f.another(t, f.certificate(t, "host.crt"))) // the second comes before the first has expired, or after
	f.renewsOnly(t)
	outrun(t, second)
	f.says(t, "follows the hub")

	f.end(t, agent, syscall.SIGKILL)
	last := f.certificate(t, "host.crt")
	outrun(t, last)
	agent = f.agent(t)
	last = f.another(t, last)
	f.says(t, "follows the hub")

	f.end(t, agent, syscall.SIGKILL)
	key := f.keyed(t, "revoked")
	outrun(t, last)
	agent = f.agent(t)
	f.says(t, "is not let in: the hub refuses: host one has another key")
	if now := running(t, "default.web"); !slices.Equal(now, first) || !f.certificate(t, "host.crt").Equal(last) {
		t.Errorf("processes %v, expected still %v; certificate until %s", now, first, last.NotAfter)
	}

	f.keyed(t, key) // somebody admits it again
	f.says(t, "follows the hub")
	f.deleteApp(t, "web")
	f.end(t, agent, syscall.SIGTERM)
}

// A hub restarts by itself with new certificates, as the same process. The host follows it.
func TestAnew(t *testing.T) {
	long(t)
	f := unstarted(t)
	f.more = []string{"--anew", "30s"}
	f.up, f.join = f.hub(t, "hub")
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	agent := f.agent(t)
	f.says(t, "follows the hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
	trust, err := rest.TLSConfigFor(f.admin)
	if err != nil {
		t.Fatal(err)
	}
	server := func() []byte {
		c, err := tls.Dial("tcp", fmt.Sprint("127.0.0.1:", f.port), trust)
		if err != nil {
			t.Log(err)
			return nil
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Raw
	}
	first := server()
	until(t, "the hub has another certificate", func() error {
		if now := server(); now == nil || slices.Equal(now, first) {
			return errors.New("it has none, or that")
		}
		return nil
	})
	f.says(t, "follows the hub, since ")
	f.end(t, f.up, syscall.SIGTERM) // it is still the same process
	f.end(t, agent, syscall.SIGTERM)
}

// keyed sets the digest of the host's key at the hub, and returns the earlier one.
func (f *fleet) keyed(t *testing.T, key string) (was string) {
	t.Helper()
	hosts := f.resource("hosts", api.Namespace("one"))
	u, err := hosts.Get(t.Context(), "one", metav1.GetOptions{})
	if err == nil {
		was = u.GetAnnotations()[api.KeyOf]
		u.SetAnnotations(map[string]string{api.KeyOf: key})
		_, err = hosts.Update(t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return was
}

// renewsOnly checks what the renewal certificate permits.
func (f *fleet) renewsOnly(t *testing.T) {
	t.Helper()
	c := f.certificate(t, "renewal.crt")
	if life := time.Until(c.NotAfter); life < 90*24*time.Hour || life > 91*24*time.Hour {
		t.Errorf("it is valid for %s", life)
	}
	own := rest.AnonymousClientConfig(f.admin)
	own.CertFile, own.KeyFile = filepath.Join(f.file("agent"), "hub", "renewal.crt"), filepath.Join(f.file("agent"), "host.key")
	core, client, err := clients(own)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Resource(api.Resource("hosts")).Namespace(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
	_, lerr := core.CoordinationV1().Leases(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.IsForbidden(lerr) {
		t.Errorf("it reads the host: %v", errors.Join(err, lerr))
	}
	if !strings.HasPrefix(c.Subject.CommonName, api.Renewer("")) {
		t.Errorf("it is of %s", c.Subject)
	}
}
