package up

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// post sends the store of this hub a question, through etcd's JSON gateway, and returns its answer. The
// caller closes it.
func (o Options) post(ctx context.Context, path string, question any) (io.ReadCloser, error) {
	client, err := o.storeClient()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("https://127.0.0.1:%d/v3/%s", o.Port+1, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, 300))
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: %s: %s", at, response.Status, bytes.TrimSpace(said))
}

// storeClient returns a client for the store of this hub, with one question to a connection.
func (o Options) storeClient() (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(o.file("pki", "store-client.crt"), o.file("pki", "store-client.key"))
	if err != nil {
		return nil, err
	}
	a, err := LoadAuthority(o.PKI(), "store")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}}}}, nil
}
