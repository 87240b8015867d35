package agent

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
)

// certificate is a kind of certificate that a hub gives to a host.
type certificate struct {
	file  string
	user  func(host string) string
	group string
}

// own is the certificate for everything that a host does.
func own() certificate { return certificate{"host.crt", api.User, api.Hosts} }

// renewal is valid for longer, and serves only to get another certificate.
func renewal() certificate { return certificate{"renewal.crt", api.Renewer, api.Renewing} }

// denied means that a hub has refused a certificate, unwritten that this host has got one and cannot store
// it. In neither case does the host ask again soon.
type (
	denied    struct{ error }
	unwritten struct{ error }
)

// request gets a certificate for this host's key, and writes it to the folder of a hub.
func (o Options) request(ctx context.Context, core kubernetes.Interface, name string, c certificate,
	dir string) error {
	key, err := o.key()
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: c.user(name), Organization: []string{c.group}}}, key)
	if err != nil {
		return err
	}
	requests := core.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "isolane-" + name + "-" + strings.ToLower(rand.Text()[:8])},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: api.Signer,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("the hub takes no request: expected a token that is new and not used: %w", err)
	}
	for len(r.Status.Certificate) == 0 {
		for _, said := range r.Status.Conditions {
			if said.Type == certificatesv1.CertificateDenied {
				return denied{fmt.Errorf("the hub refuses: %s", said.Message)}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the hub does not answer the request %s: %w", r.Name, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		asked := r.Name
		if r, err = requests.Get(ctx, asked, metav1.GetOptions{}); err != nil { // this is no refusal
			return errors.New("the hub has taken the request " + asked + ", and its answer cannot be read: " +
				err.Error())
		}
	}
	if err = desired.WriteFile(filepath.Join(dir, c.file), r.Status.Certificate); err != nil {
		err = unwritten{err}
	}
	return err
}

// due returns when a certificate is due for renewal, after two thirds of its life, and that life. Both are
// zero if there is no such certificate.
func (o Options) due(c certificate) (at time.Time, life time.Duration, err error) {
	data, err := os.ReadFile(o.hub(c.file))
	if errors.Is(err, fs.ErrNotExist) {
		return at, 0, nil
	}
	if err != nil {
		return at, 0, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return at, 0, fmt.Errorf("%s: expected a certificate as PEM", o.hub(c.file))
	}
	is, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return at, 0, fmt.Errorf("%s: %w", o.hub(c.file), err)
	}
	life = is.NotAfter.Sub(is.NotBefore)
	return is.NotBefore.Add(life * 2 / 3), life, nil
}

// renew asks for new certificates when this host's own is due. The renewal certificate is renewed with it, so
// its validity after that stays as long as ever.
func (a *Agent) renew(ctx context.Context) error {
	at, life, err := a.o.due(own())
	other, _, oerr := a.o.due(renewal())
	if err = errors.Join(err, oerr); err != nil {
		return err
	}
	if a.due = at; a.clock.hub().Before(at) && !other.IsZero() || a.askedLately(life) {
		return nil
	}
	return a.replace(ctx, a.server.core, renewal(), own())
}

// askedLately reports whether the hub has answered a request recently. If the clock jumps, each certificate
// may be due at once.
func (a *Agent) askedLately(life time.Duration) bool {
	return !a.renewed.IsZero() && time.Since(a.renewed) < min(time.Hour, life/10)
}

// readmit gets a new certificate after this host's own has expired, so that the hub no longer accepts it. It
// uses the renewal certificate and the same key. It does not depend on this host's clock.
func (a *Agent) readmit(ctx context.Context) error {
	if _, life, err := a.o.due(own()); err != nil || a.askedLately(life) {
		return err
	}
	core, err := kubernetes.NewForConfig(a.config(renewal()))
	if err != nil {
		return err
	}
	if err = a.replace(ctx, core, own(), renewal()); apierrors.IsUnauthorized(err) {
		err = errors.Join(a.bothExpired(), err)
	}
	if err != nil {
		a.note("is not let in", strings.SplitN(err.Error(), "\n", 2)[0])
	}
	return err
}

// bothExpired is the error if a hub takes neither certificate. A third of its life is left when one is due.
func (a *Agent) bothExpired() error {
	at, life, err := a.o.due(own())
	other, longer, oerr := a.o.due(renewal())
	if err = errors.Join(err, oerr); err != nil {
		return err
	}
	return fmt.Errorf("the hub takes neither certificate of this host, valid until %s and %s; what runs goes "+
		"on: isolane-hub rehome, with a new token, joins again", at.Add(life/3).Format(time.DateOnly),
		other.Add(longer/3).Format(time.DateOnly))
}

// replace gets certificates, and makes the connections use them.
func (a *Agent) replace(ctx context.Context, core kubernetes.Interface, all ...certificate) error {
	for _, c := range all {
		err := a.o.request(ctx, core, a.joined.Name, c, a.o.hub(""))
		_, no := errors.AsType[denied](err)
		if _, full := errors.AsType[unwritten](err); no || full {
			a.renewed = time.Now()
		}
		if err != nil {
			return err
		}
	}
	a.renewed = time.Now()
	at, _, err := a.o.due(own())
	a.due = at
	for _, l := range a.links { // a connection states who this host is when it begins
		l.dialer.CloseAll()
	}
	a.talkNow()
	return err
}
