package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// startControl starts the store and the API server. They listen in the network namespace of the bed.
func (b *Bed) startControl() error {
	const peers = "http://127.0.0.1:2380"
	const store = "http://127.0.0.1:2379"
	err := b.run("etcd", "--name=bed", "--data-dir="+b.file("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+store, "--advertise-client-urls="+store, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=bed="+peers, "--log-level=warn")
	if err != nil {
		return err
	}
	pki := func(name string) string { return filepath.Join(b.file("pki"), name) }
	return b.run("kube-apiserver", "--etcd-servers="+store, "--bind-address=0.0.0.0",
		"--advertise-address="+address(b.number, 1).String(), fmt.Sprintf("--secure-port=%d", apiPort),
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--client-ca-file="+pki("ca.crt"), "--cert-dir="+b.file("apiserver"),
		"--kubelet-client-certificate="+pki("kubelet-client.crt"),
		"--kubelet-client-key="+pki("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki("sa.crt"),
		"--service-account-signing-key-file="+pki("sa.key"), "--service-cluster-ip-range="+services,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--enable-aggregator-routing", // reaches the pods that serve it without a kube-proxy
		"--endpoint-reconciler-type=none", "--profiling=false", b.features())
}

// startControllers starts what needs a working API server.
func (b *Bed) startControllers() error {
	pki := func(name string) string { return filepath.Join(b.file("pki"), name) }
	err := b.run("kube-controller-manager", "--kubeconfig="+b.file("controller-manager.kubeconfig"),
		"--kube-api-qps=200", "--kube-api-burst=400", // by default it waits 5 s for the accounts of its parts
		"--leader-elect=false", "--service-account-private-key-file="+pki("sa.key"),
		"--root-ca-file="+pki("ca.crt"), "--use-service-account-credentials",
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--bind-address=127.0.0.1", b.features())
	if err != nil {
		return err
	}
	return b.run("kube-scheduler", "--kubeconfig="+b.file("scheduler.kubeconfig"), "--leader-elect=false",
		"--bind-address=127.0.0.1", b.features())
}

// run starts a program of the control plane.
func (b *Bed) run(name string, args ...string) error {
	args = slices.DeleteFunc(args, func(a string) bool { return a == "" })
	p, err := b.starter.start(name, b.log(name), exec.Command(filepath.Join(b.programs, name), args...))
	if err != nil {
		return err
	}
	b.control = append(b.control, p)
	return b.recordProcess(p)
}

// features returns the flag for feature gates; "": the defaults.
func (b *Bed) features() string {
	var gates []string
	for gate, on := range b.options.Features {
		gates = append(gates, fmt.Sprintf("%s=%t", gate, on))
	}
	if len(gates) == 0 {
		return ""
	}
	slices.Sort(gates)
	return "--feature-gates=" + strings.Join(gates, ",")
}

// waitControl waits until the API server answers.
func (b *Bed) waitControl(ctx context.Context) error {
	err := b.until(ctx, "the API server is ready", func() error { return b.get(ctx, "/readyz", nil) })
	b.say("the API server is ready")
	return err
}

// waitNodes waits until pods can run: all nodes are ready, and pods have an account.
func (b *Bed) waitNodes(ctx context.Context) error {
	for _, n := range b.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
		b.say("node %s is ready", n.Name)
	}
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	return b.until(ctx, "pods have an account", func() error { return b.get(ctx, account, nil) })
}

// until repeats try until it returns no error, or a necessary program has ended.
func (b *Bed) until(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		var ended error
		for _, p := range b.control {
			ended = errors.Join(ended, p.err())
		}
		for _, n := range b.Nodes {
			ended = errors.Join(ended, n.init.err())
		}
		if ended != nil {
			return fmt.Errorf("waiting until %s: %w", what, ended)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w: %w", what, ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get sends a request to the API server as administrator.
func (b *Bed) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server()+path, nil)
	if err != nil {
		return err
	}
	answer, err := b.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: %s", path, answer.Status)
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}
