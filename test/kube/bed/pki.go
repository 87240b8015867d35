package bed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of a bed, and writes them to a folder.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// pair has a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// newAuthority makes a certificate authority: dir has ca.crt and ca.key.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := template(pkix.Name{CommonName: "kubebed"})
	cert.IsCA, cert.BasicConstraintsValid = true, true
	cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a := &authority{dir: dir, key: key, cert: cert}
	made, err := a.sign(cert, key)
	if err != nil {
		return nil, err
	}
	a.pem = made.cert
	return a, a.write("ca", made)
}

// numberFile has the number of the bed, beside its certificates: it determines the addresses.
const numberFile = "number"

// readAuthority reads the authority of another bed from a copy of its folder, and writes its certificate to
// dir.
func readAuthority(from, dir string) (*authority, error) {
	cert, err := os.ReadFile(filepath.Join(from, "ca.crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(from, "ca.key"))
	if err != nil {
		return nil, err
	}
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	private, ok := p.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s/ca.key: expected an ECDSA key", from)
	}
	a := &authority{dir: dir, key: private, cert: p.Leaf, pem: cert}
	return a, a.write("ca", pair{cert, key})
}

// issue makes a certificate for servers and clients, in dir/name.crt and dir/name.key.
func (a *authority) issue(name string, subject pkix.Name, addresses []net.IP, names ...string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	cert := template(subject)
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert.IPAddresses, cert.DNSNames = addresses, names
	p, err := a.sign(cert, key)
	if err != nil {
		return p, err
	}
	return p, a.write(name, p)
}

func template(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 30)}
}

func (a *authority) sign(cert *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, err
}

func (a *authority) write(name string, p pair) error {
	if err := os.WriteFile(filepath.Join(a.dir, name+".crt"), p.cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, name+".key"), p.key, 0o600)
}

// kubeconfig writes a file with which a client reaches the API server. It is self-contained.
func (a *authority) kubeconfig(file, server string, user pair) error {
	named := func(kind string, value any) []any { return []any{map[string]any{"name": "kubebed", kind: value}} }
	data, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "kubebed",
		"clusters": named("cluster", map[string]any{"server": server, "certificate-authority-data": a.pem}),
		"users": named("user", map[string]any{"client-certificate-data": user.cert,
			"client-key-data": user.key}),
		"contexts": named("context", map[string]any{"cluster": "kubebed", "user": "kubebed"}),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// client returns how an owner of these credentials speaks TLS.
func (a *authority) client(user pair) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(user.cert, user.key)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13}, err
}
