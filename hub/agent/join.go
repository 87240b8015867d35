package agent

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// Join joins this host to a hub: it makes a key, which stays here, and gets a certificate for it. On a host
// that has joined already it changes nothing and fails.
func Join(ctx context.Context, o Options, hub Hub, name string) error {
	if _, err := os.Stat(o.hub("joined.json")); err == nil {
		return fmt.Errorf("%s: this host has joined a hub already: isolane-hub rehome brings it to another",
			o.hub("joined.json"))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return o.join(ctx, hub, name)
}

// refused reports whether a hub has said no. A hub that has said nothing may know the key already, so the key
// is then kept for the next try.
func refused(err error) bool {
	_, no := errors.AsType[denied](err)
	return no || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

// Hub is a hub to join.
type Hub struct {
	URL       string
	Token     sites.Token
	Authority []byte // the hub's certificate, if its server does not show it; the token has its digest
}

// join makes the folder of a hub, and then points the link to it. If the hub refuses, join removes what it
// made.
func (o Options) join(ctx context.Context, hub Hub, name string) (err error) {
	authority, err := hub.recognize(ctx)
	if err != nil {
		return err
	}
	_, gone := os.Stat(o.Dir)
	if err = os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("--dir %s: expected a folder that can be made: %w", o.Dir, err)
	}
	_, keyless := os.Stat(o.file("host.key"))
	admitted := false
	defer func() {
		if refused(err) && !admitted && errors.Is(keyless, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(o.file("host.key")))
		}
		if err != nil && errors.Is(gone, fs.ErrNotExist) {
			_ = os.Remove(o.Dir) // unless it holds the key
		}
	}()
	core, err := kubernetes.NewForConfig(&rest.Config{Host: hub.URL, BearerToken: hub.Token.Bearer(),
		TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	if err != nil {
		return err
	}
	if err = o.writable(); err != nil { // before the token is used up
		return err
	}
	made, err := os.MkdirTemp(o.Dir, "hub-")
	if err != nil {
		return err
	}
	if admitted, err = o.requestBoth(ctx, core, hub, authority, name, made); err == nil {
		err = desired.WriteFile(filepath.Join(made, "hub.crt"), authority)
	}
	if err == nil {
		err = joined{URL: hub.URL, Name: name, New: true}.write(filepath.Join(made, "joined.json"))
	}
	was, _ := filepath.EvalSymlinks(o.hub("")) // "" if there is none
	if err == nil {
		err = os.Symlink(filepath.Base(made), made+".link")
	}
	if err == nil {
		err = os.Rename(made+".link", o.file("hub"))
	}
	switch {
	case err != nil:
		return errors.Join(err, os.RemoveAll(made), os.RemoveAll(made+".link"))
	case was != "":
		err = os.RemoveAll(was)
	}
	return errors.Join(err, desired.Sync(o.Dir)) // the token is used up: a power cut must find this host joined
}

// room is more than everything that a host keeps of a hub.
const room = 64 << 10

// writable checks that the folder takes what a hub gives: a token is used up before that is written.
func (o Options) writable() error {
	file := o.file(".room")
	err := desired.WriteFile(file, make([]byte, room))
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		return fmt.Errorf("--dir %s: expected a disk that has room and can be written: %w; the token is not used "+
			"up", o.Dir, errors.Unwrap(err)) // without the file's name, which nobody gave
	}
	return nil
}

// requestBoth gets a host its certificate with the token, which is then used up, and at once the certificate
// for renewals: the agent may start only after the first has expired. It reports whether the hub now knows
// the host by its key.
func (o Options) requestBoth(ctx context.Context, core kubernetes.Interface, hub Hub, authority []byte,
	name, dir string) (admitted bool, err error) {
	if err = o.request(ctx, core, name, own(), dir); err != nil {
		return false, err
	}
	known, err := kubernetes.NewForConfig(&rest.Config{Host: hub.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: authority, CertFile: filepath.Join(dir, own().file), KeyFile: o.file("host.key")}})
	if err == nil {
		err = o.request(ctx, known, name, renewal(), dir)
	}
	if err != nil {
		err = fmt.Errorf("the hub has let this host in, and its key is kept: expected isolane-hub join again, "+
			"with a new token: %w", err)
	}
	return true, err
}

// recognize returns the certificate of the hub's authority as PEM if its digest is the one in the token.
func (h Hub) recognize(ctx context.Context) ([]byte, error) {
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, err
	}
	given, err := x509.ParseCertificates(h.Authority)
	if err != nil {
		return nil, fmt.Errorf("--authority: expected what isolane-hub token has printed: %w", err)
	}
	var found *x509.Certificate
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the digest
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, c := range slices.Concat(given, s.PeerCertificates) {
				if up.Digest(c) == h.Token.Authority {
					found = c
				}
			}
			if found == nil {
				return errors.New("it is not the hub of this token: no certificate that it shows has the digest " +
					"of the token")
			}
			roots := x509.NewCertPool()
			roots.AddCert(found)
			_, verr := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: u.Hostname()})
			return verr
		}}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), u.Port()))
	if err != nil {
		if why := explainClock(err); why != "" {
			err = errors.New(why)
		}
		return nil, fmt.Errorf("hub %s: %w", h.URL, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: found.Raw}), conn.Close()
}

// key returns the key of this host, and makes it if there is none.
func (o Options) key() (crypto.Signer, error) {
	file := o.file("host.key")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(file)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: expected a key as PEM", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, is := key.(crypto.Signer)
	if err == nil && !is {
		err = errors.New("expected a key that signs")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return signer, nil
}

func makeKey(file string) (crypto.Signer, error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, err
	}
	return made, desired.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
