package up

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"isolane.dev/isolane/hub/desired"
)

// Authority signs certificates. Its key stays in one file.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// pair has the files of a certificate and of its key.
type pair struct{ cert, key string }

// LoadAuthority reads an authority by its name from a folder.
func LoadAuthority(dir, name string) (*Authority, error) {
	p := pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	loaded, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(loaded.Certificate[0])
	key, is := loaded.PrivateKey.(crypto.Signer)
	if err == nil && !is {
		err = fmt.Errorf("%s: expected a key that signs", p.key)
	}
	return &Authority{cert, key}, err
}

// ensureAuthority reads an authority, and makes it first if it does not exist.
func ensureAuthority(dir, name string) (*Authority, error) {
	a, err := LoadAuthority(dir, name)
	if err == nil {
		err = timely(filepath.Join(dir, name+".crt"), a.Cert, time.Now())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "isolane-hub " + name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().AddDate(-10, 0, 0), NotAfter: time.Now().AddDate(10, 0, 0)} // for clocks that lag
	a = &Authority{cert, key}
	der, err := a.sign(cert, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	p := pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	if err = writePair(p, der, key); err != nil {
		return nil, err
	}
	return LoadAuthority(dir, name)
}

// timely checks that an authority is valid by this machine's clock: else nobody trusts what it signs.
func timely(file string, c *x509.Certificate, now time.Time) error {
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("%s: it is valid from %s to %s: expected the clock of this machine to be right, found %s",
			file, c.NotBefore.Format(time.DateOnly), c.NotAfter.Format(time.DateOnly),
			now.UTC().Format(time.DateOnly))
	}
	return nil
}

// sign signs a certificate with a random serial number.
func (a *Authority) sign(cert *x509.Certificate, public any) ([]byte, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	cert.SerialNumber = number
	return x509.CreateCertificate(rand.Reader, cert, a.Cert, public, a.key)
}

// SignClient returns a client's certificate as PEM. It is valid from before now until life from now.
func (a *Authority) SignClient(subject pkix.Name, public any, before, life time.Duration) ([]byte, error) {
	from := time.Now().Add(-before)
	if from.Before(a.Cert.NotBefore) {
		from = a.Cert.NotBefore
	}
	der, err := a.sign(&x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   from, NotAfter: time.Now().Add(life)}, public)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// issue makes a key and a certificate for a server or a client of this machine. It is valid for a year,
// because each start of the hub makes a new one, and from as early as the authority, for clocks that lag. The
// authority's certificate follows in the file, so that whoever knows only its digest can check it.
func (a *Authority) issue(dir, name string, subject pkix.Name, at ...string) (pair, error) {
	p := pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	cert := &x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   a.Cert.NotBefore, NotAfter: time.Now().AddDate(1, 0, 0)}
	for _, where := range at {
		if ip := net.ParseIP(where); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, where)
		}
	}
	der, err := a.sign(cert, &key.PublicKey)
	if err != nil {
		return p, err
	}
	return p, writePair(p, der, key, a.Cert.Raw)
}

// writePair writes a certificate with those above it, and a key that only root reads.
func writePair(p pair, cert []byte, key *ecdsa.PrivateKey, others ...[]byte) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	for _, other := range others {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other})...)
	}
	err = desired.WriteFile(p.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return errors.Join(err, desired.WriteFile(p.cert, text))
}

// Digest returns the name of a certificate in the token by which hosts join.
func Digest(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
