package main

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/api"
)

// A host whose Host object is deleted has no rights although its certificate is valid, gets no other one, and
// says why. What runs there goes on. With a new token it joins again, as it is.
func TestRevoke(t *testing.T) {
	f := newFleet(t)
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	agent := f.agent(t)
	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	f.app(t, "default", "web", "Running")
	first := running(t, "default.web")

	own := rest.AnonymousClientConfig(f.admin)
	own.CertFile, own.KeyFile = filepath.Join(f.file("agent"), "hub", "host.crt"), f.file("agent")+"/host.key"
	core, client, err := clients(own)
	if err != nil {
		t.Fatal(err)
	}
	space := api.Namespace("one")
	hosts := f.resource("hosts", space)
	was, err := hosts.Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := core.CoordinationV1().Leases(space).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err = hosts.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it has no rights", func() error {
		for what, do := range map[string]func() error{
			"reads its Instances": func() error {
				_, lerr := client.Resource(api.Resource("instances")).Namespace(space).List(t.Context(), metav1.ListOptions{})
				return lerr
			},
			"writes its status": func() error {
				_, uerr := client.Resource(api.Resource("hosts")).Namespace(space).UpdateStatus(t.Context(), was, metav1.UpdateOptions{})
				return uerr
			},
			"renews its Lease": func() error {
				_, uerr := core.CoordinationV1().Leases(space).Update(t.Context(), lease, metav1.UpdateOptions{})
				return uerr
			},
		} {
			if derr := do(); !apierrors.IsForbidden(derr) {
				return fmt.Errorf("it %s: %w", what, derr)
			}
		}
		return nil
	})
	for _, name := range []string{api.User("one"), api.Renewer("one")} {
		if said := f.asks(t, core, own, name); !strings.Contains(said, "host one is no more: expected it to join again") {
			t.Errorf("%s: %s", name, said)
		}
	}
	if log, rerr := os.ReadFile(f.file("hub.log")); rerr != nil || !strings.Contains(string(log), "a host was revoked: its Host is deleted") {
		t.Errorf("the hub says %s, %v", log, rerr)
	}
	f.end(t, agent, syscall.SIGKILL)
	agent = f.agent(t)
	f.says(t, "is not let in: the hub has no host one, or somebody has revoked it; what runs goes on")
	if now := running(t, "default.web"); !slices.Equal(now, first) {
		t.Errorf("processes %v, expected still %v", now, first)
	}

	f.run(t, append(append([]string{"rehome"}, f.token(t)[1:]...), "--dir", f.file("agent"))...)
	f.says(t, "follows the hub")
	f.app(t, "default", "web", "Running")
	if now := running(t, "default.web"); !slices.Equal(now, first) {
		t.Errorf("processes %v after it has joined again, expected still %v", now, first)
	}
	f.deleteApp(t, "web")
	f.end(t, agent, syscall.SIGTERM)
}

// asks makes the host ask for a certificate with its own, and returns the hub's answer.
func (f *fleet) asks(t *testing.T, core kubernetes.Interface, own *rest.Config, name string) (said string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}},
		pair.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	requests := core.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "revoked-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: api.Signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the hub answers", func() error {
		is, gerr := requests.Get(t.Context(), r.Name, metav1.GetOptions{})
		if gerr == nil && len(is.Status.Certificate)+len(is.Status.Conditions) == 0 {
			gerr = errors.New("nothing yet")
		}
		if gerr == nil {
			said = fmt.Sprint(is.Status.Conditions)
		}
		return gerr
	})
	return said
}
