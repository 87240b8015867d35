package bed

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
)

// kubectlPort is where a control plane runs kubectl for a machine that has joined it, because an emulated
// machine takes ten seconds and more to start that program. Clients show a certificate of the bed.
const kubectlPort = 8443

type (
	kubectlRequest struct {
		Args  []string
		Stdin string
	}
	kubectlAnswer struct{ Out, Error string }
)

// serveKubectl serves until the listener is closed.
func (b *Bed) serveKubectl() error {
	pki := func(name string) string { return filepath.Join(b.file("pki"), name) }
	own, err := tls.LoadX509KeyPair(pki("apiserver.crt"), pki("apiserver.key"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.authority.pem)
	err = b.starter.do(func() (err error) { // in the network of the control plane
		b.kubectls, err = net.Listen("tcp", fmt.Sprintf("%s:%d", address(b.number, 1), kubectlPort))
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(b.answerKubectl), ReadHeaderTimeout: Patient(limit)}
	settings := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: roots,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	go func() { _ = server.Serve(tls.NewListener(b.kubectls, settings)) }() // until the listener is closed
	return nil
}

func (b *Bed) answerKubectl(w http.ResponseWriter, r *http.Request) {
	var asked kubectlRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answer kubectlAnswer
	var err error
	if answer.Out, err = b.Kubectl(r.Context(), asked.Stdin, asked.Args...); err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(w).Encode(answer) // fails if the client has gone
}

// askKubectl makes the control plane that this bed has joined run kubectl.
func (b *Bed) askKubectl(ctx context.Context, stdin io.Reader, args []string) (string, error) {
	input, err := io.ReadAll(stdin)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(kubectlRequest{args, string(input)})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		fmt.Sprintf("https://%s:%d", address(b.number, 1), kubectlPort), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	patient := &http.Client{Transport: b.client.Transport} // until ctx ends: kubectl wait
	response, err := patient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer kubectlAnswer
	if err = json.NewDecoder(response.Body).Decode(&answer); err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer.Out, err
}
