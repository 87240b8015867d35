// Package simulate has many hosts of one hub on one machine: each with a key, a certificate and a connection
// of its own, and a machine that was read from a snapshot. They report, read, beat and reserve as hosts do,
// and run nothing.
package simulate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Host is a host that is none.
type Host struct {
	Name    string
	machine host.Host
	core    kubernetes.Interface
	client  dynamic.Interface
	lease   *coordinationv1.Lease

	listening atomic.Bool

	lock   sync.Mutex
	placed plan.Placement
	mine   map[string]bool // UIDs of what has a lane here
}

// Join makes a host known to the hub, without a token: who calls it has the hub's authority.
func Join(ctx context.Context, s *sites.Signer, hub *rest.Config, name, site string, machine host.Host) (
	*Host, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert, err := s.Sign(pkix.Name{CommonName: api.User(name), Organization: []string{api.Hosts}}, &key.PublicKey,
		time.Hour, sites.Certificates)
	if err == nil {
		err = s.Make(ctx, name, site, "simulated")
	}
	if err != nil {
		return nil, err
	}
	c := rest.AnonymousClientConfig(hub)
	c.CertData, c.KeyData = cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	h := &Host{Name: name, machine: machine, mine: map[string]bool{}}
	h.machine.Hostname = name
	if h.client, err = dynamic.NewForConfig(c); err == nil {
		c.ContentType = runtime.ContentTypeProtobuf
		h.core, err = kubernetes.NewForConfig(c)
	}
	return h, err
}

// Listens says whether the host hears at once what the hub says to it.
func (h *Host) Listens() bool { return h.listening.Load() }

func (h *Host) resource(name string) dynamic.ResourceInterface {
	return h.client.Resource(api.Resource(name)).Namespace(api.Namespace(h.Name))
}

// Run reports, and answers what the hub asks, until the context ends. ready is called when it has reported.
func (h *Host) Run(ctx context.Context, ready func(), failed func(error)) {
	try := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("host %s: %w", h.Name, err))
		}
		return err == nil
	}
	for reported := false; ctx.Err() == nil; {
		if reported {
			try(errors.Join(h.read(ctx), h.beat(ctx))) // as the agent does, which has nothing new to say
		} else if reported = try(errors.Join(h.report(ctx), h.beat(ctx))); reported {
			ready()
		}
		try(h.listen(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// listen answers what comes, and beats, until the watch ends.
func (h *Host) listen(ctx context.Context) error {
	list, err := h.resource("instances").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err = h.heard(ctx, &list.Items[i], false); err != nil {
			return err
		}
	}
	w, err := h.resource("instances").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer w.Stop()
	h.listening.Store(true)
	defer h.listening.Store(false)
	ticker := time.NewTicker(sites.Pulse)
	defer ticker.Stop()
	for beats := 1; ; {
		select {
		case <-ticker.C:
			if beats++; beats%5 == 0 { // as often as the agent
				err = h.read(ctx)
			}
			err = errors.Join(err, h.beat(ctx))
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if u, is := event.Object.(*unstructured.Unstructured); is {
				err = h.heard(ctx, u, event.Type == "DELETED")
			}
		}
		if err != nil {
			return err
		}
	}
}

// read reads what the agent reads each time.
func (h *Host) read(ctx context.Context) error {
	_, err := h.core.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err == nil {
		_, err = h.resource("hosts").Get(ctx, h.Name, metav1.GetOptions{})
	}
	if err == nil {
		_, err = h.resource("instances").List(ctx, metav1.ListOptions{})
	}
	return err
}

// beat renews the Lease.
func (h *Host) beat(ctx context.Context) (err error) {
	h.lease, err = sites.Beat(ctx, h.core, h.Name, h.lease)
	return err
}

// report says what the host is like.
func (h *Host) report(ctx context.Context) error {
	u, err := h.resource("hosts").Get(ctx, h.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now, err := api.From[api.Host](u)
	if err != nil {
		return err
	}
	h.lock.Lock()
	room, err := solver.Free(h.machine, h.placed)
	machine, merr := json.Marshal(lanes.Machine{Host: h.machine, Lanes: h.placed.Lanes})
	h.lock.Unlock()
	if err = errors.Join(err, merr); err != nil {
		return err
	}
	now.Status = api.HostStatus{Mark: now.Status.Mark, CPUs: h.machine.Online().Len(), Free: room.CPUs.String(),
		Kernel: h.machine.Kernel.Release, Machine: machine}
	_, err = api.WriteStatus(ctx, h.resource("hosts"), now)
	return err
}

// heard does what an Instance asks for.
func (h *Host) heard(ctx context.Context, u *unstructured.Unstructured, gone bool) error {
	i, err := api.From[api.Instance](u)
	if err != nil {
		return err
	}
	switch {
	case gone || i.DeletionTimestamp != nil:
		return h.release(ctx, i)
	case i.Spec.Reserve && i.Status.Phase == "",
		!i.Spec.Reserve && (i.Status.Phase != "Running" || i.Status.Generation != i.Generation):
		if i.Status, err = h.take(i); err == nil {
			_, err = api.WriteStatus(ctx, h.resource("instances"), i)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			err = nil // there is more to hear
		}
	}
	return err
}

// take places the lane of an Instance, unless it is.
func (h *Host) take(i api.Instance) (s api.InstanceStatus, err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	want, err := api.Lane(i.Name, i.Spec.Lane)
	if err != nil {
		return api.InstanceStatus{Phase: api.Refused, Message: err.Error()}, nil
	}
	if !h.mine[string(i.UID)] {
		p, refusal := solver.Solve(h.machine, h.placed, []lane.Lane{want})
		if refusal != nil {
			s.Phase, s.Message = api.Refused, refusal.Error()
			s.Placement, err = json.Marshal(h.placed)
			return s, err
		}
		h.placed, h.mine[string(i.UID)] = p, true
	}
	s.Phase, s.Generation = "Running", i.Generation
	if i.Spec.Reserve {
		s.Phase = api.Reserved
		s.Placement, err = json.Marshal(h.placed)
	}
	return s, err
}

func (h *Host) release(ctx context.Context, i api.Instance) error {
	h.lock.Lock()
	was := h.mine[string(i.UID)]
	if delete(h.mine, string(i.UID)); was {
		var left []plan.Lane
		for _, l := range h.placed.Lanes {
			if l.Name != i.Name {
				left = append(left, l)
			}
		}
		h.placed.Lanes = left
	}
	h.lock.Unlock()
	if was {
		return h.report(ctx)
	}
	return nil
}
