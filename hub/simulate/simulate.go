// Package simulate has many hosts of one hub on one machine. Each has its own key, certificate and
// connection, and a machine that was read from a snapshot. They report, read, beat and reserve as real hosts
// do, and run nothing.
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
	"net"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
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

// Like is what all simulated hosts report.
type Like struct {
	Machine  host.Host
	Findings []api.Finding // of an audit of some machine
}

// changes is how many of its last changes a host reports: as many as the agent.
const changes = 20

// Host is a simulated host.
type Host struct {
	Name   string
	like   Like
	core   kubernetes.Interface
	client dynamic.Interface
	hosts  dynamic.Interface // as the agent, reports by a connection that does not stay
	rest   func()            // closes it
	lease  *coordinationv1.Lease
	asked  sites.Renewal

	listening atomic.Bool
	referee   *Referee // nil: nobody judges
	own       chan int // CPUs of a lane that people of the host put in force; 0: they release one

	lock    sync.Mutex
	placed  plan.Placement
	mine    map[string]bool // UIDs of Instances with a lane here
	runs    map[string]bool // names of Instances that it has reported as running
	changes []api.Change
	told    uint64 // how often it has reported
}

// Join makes a host known to the hub without a token, because its caller has the hub's authority.
func Join(ctx context.Context, s *sites.Signer, hub *rest.Config, name, site string, like Like) (
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
	h := &Host{Name: name, like: like, own: make(chan int), mine: map[string]bool{}, runs: map[string]bool{}}
	h.like.Machine.Hostname = name
	for range changes {
		h.changed("put back", "", "/proc/irq/34/smp_affinity_list: 0-31, by irqbalance; expected 0,16")
	}
	if err = h.connect(c); err == nil {
		c.ContentType = runtime.ContentTypeProtobuf
		h.core, err = kubernetes.NewForConfig(c)
	}
	return h, err
}

// connect makes the connections for reports and for everything else of dynamic kinds.
func (h *Host) connect(c *rest.Config) (err error) {
	if h.client, err = dynamic.NewForConfig(c); err != nil {
		return err
	}
	own := rest.CopyConfig(c)
	own.Dial = (&net.Dialer{}).DialContext // a client with the same dialer would have the same connection
	large, err := rest.HTTPClientFor(own)
	if err != nil {
		return err
	}
	h.rest = func() { utilnet.CloseIdleConnectionsFor(large.Transport) }
	h.hosts, err = dynamic.NewForConfigAndClient(own, large)
	return err
}

// Listens reports whether the host is watching the hub.
func (h *Host) Listens() bool { return h.listening.Load() }

// Runs reports whether the host has told the hub that an Instance runs.
func (h *Host) Runs(instance string) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.runs[instance]
}

func (h *Host) resource(name string) dynamic.ResourceInterface {
	by := h.client
	if name == "hosts" {
		by = h.hosts
	}
	return by.Resource(api.Resource(name)).Namespace(api.Namespace(h.Name))
}

// changed records an event of the host.
func (h *Host) changed(kind, name, what string) {
	h.changes = append(h.changes, api.Change{At: metav1.Now(), Kind: kind, Lane: name, What: what})
	h.changes = h.changes[max(0, len(h.changes)-changes):]
}

// Run reports, and answers what the hub asks, until the context ends. It calls ready after the first report.
func (h *Host) Run(ctx context.Context, ready func(), failed func(error)) {
	try := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("host %s: %w", h.Name, err))
		}
		return err == nil
	}
	for reported := false; ctx.Err() == nil; {
		if reported {
			_, err := h.read(ctx) // as an agent with no news does
			h.rest()
			try(errors.Join(err, h.beat(ctx)))
		} else if reported = try(errors.Join(h.talk(ctx), h.beat(ctx))); reported {
			ready()
		}
		if reported { // otherwise the next try might wait for half an hour
			try(h.listen(ctx))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// listen answers the hub, and beats, until the watch ends.
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
	now, ahead := time.Now(), wait.Jitter(sites.Inventory, 1)-sites.Inventory // spreads the hosts
	reads, says := now.Add(sites.Calm(true)), now.Add(ahead)
	pulse := time.NewTimer(h.asked.Next())
	defer pulse.Stop()
	for {
		select {
		case now = <-pulse.C:
			switch {
			case now.After(says):
				reads, says = now.Add(sites.Calm(false)), now.Add(sites.Inventory)
				err = h.talk(ctx)
			case now.After(reads):
				reads = now.Add(sites.Calm(false))
				_, err = h.read(ctx)
			}
			h.rest()
			err = errors.Join(err, h.beat(ctx))
			pulse.Reset(h.asked.Next())
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if u, is := event.Object.(*unstructured.Unstructured); is {
				err = h.heard(ctx, u, event.Type == "DELETED")
			}
		case n := <-h.own:
			err = h.changeOwn(ctx, n)
		}
		if err != nil {
			return err
		}
	}
}

// read reads what the agent reads in each talk, and returns the Host.
func (h *Host) read(ctx context.Context) (*unstructured.Unstructured, error) {
	system, err := h.core.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	h.asked = sites.RenewalIn(system.Annotations)
	u, err := h.resource("hosts").Get(ctx, h.Name, metav1.GetOptions{})
	if err == nil {
		_, err = h.resource("instances").List(ctx, metav1.ListOptions{})
	}
	return u, err
}

// beat renews the Lease.
func (h *Host) beat(ctx context.Context) (err error) {
	h.lease, err = h.asked.Renew(ctx, h.core, h.Name, h.lease)
	return err
}

// talk reads, and reports the host.
func (h *Host) talk(ctx context.Context) error {
	defer h.rest()
	u, err := h.read(ctx)
	if err != nil {
		return err
	}
	now, err := api.From[api.Host](u)
	if err != nil {
		return err
	}
	if now.Status, err = h.status(now.Status); err != nil {
		return err
	}
	_, err = api.WriteStatus(ctx, h.resource("hosts"), now)
	return err
}

// status returns the report. It differs each time, as on a real machine, so that the hub must store it.
func (h *Host) status(was api.HostStatus) (s api.HostStatus, err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	room, err := solver.Free(h.like.Machine, h.placed)
	if err != nil {
		return s, err
	}
	h.told++
	m := lanes.Machine{Host: h.like.Machine, Lanes: h.placed.Lanes}
	m.Kernel.Steal = &h.told
	s = api.HostStatus{Mark: was.Mark, CPUs: m.Online().Len(), Free: room.CPUs.String(),
		Kernel: m.Kernel.Release, Agent: "simulated", Findings: h.like.Findings, Changes: h.changes,
		Conditions: was.Conditions}
	if len(s.Conditions) == 0 {
		s.Conditions = []metav1.Condition{{Type: "Follows", Status: metav1.ConditionTrue, Reason: "Follows",
			LastTransitionTime: metav1.Now()}}
	}
	s.Machine, err = json.Marshal(m)
	return s, err
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
		before := h.has(i)
		if i.Status, err = h.take(i); err == nil {
			_, err = api.WriteStatus(ctx, h.resource("instances"), i)
		}
		if err == nil && i.Status.Phase == "Running" {
			h.lock.Lock()
			h.runs[i.Name] = true
			h.lock.Unlock()
		}
		if err == nil && h.has(i) != before {
			err = h.talk(ctx)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			err = nil // other Instances follow
		}
	}
	return err
}

// has reports whether an Instance has a lane here.
func (h *Host) has(i api.Instance) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.mine[string(i.UID)]
}

// take places the lane of an Instance, unless it is placed.
func (h *Host) take(i api.Instance) (s api.InstanceStatus, err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	want, err := api.Lane(i.Name, i.Spec.Lane)
	if err != nil {
		return api.InstanceStatus{Phase: api.Refused, Message: err.Error()}, nil
	}
	if !h.mine[string(i.UID)] {
		p, refusal := solver.Solve(h.like.Machine, h.placed, []lane.Lane{want})
		if refusal != nil {
			s.Phase, s.Message = api.Refused, refusal.Error()
			s.Placement, err = json.Marshal(h.placed)
			return s, err
		}
		h.placed, h.mine[string(i.UID)] = p, true
		h.tellReferee()
		placed, _ := p.Lane(i.Name)
		h.changed("applied", i.Name, "CPUs "+placed.CPUs.String()+", for the hub")
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
	delete(h.runs, i.Name)
	if delete(h.mine, string(i.UID)); was {
		var left []plan.Lane
		for _, l := range h.placed.Lanes {
			if l.Name != i.Name {
				left = append(left, l)
			}
		}
		h.placed.Lanes = left
		h.changed("released", i.Name, "the hub wants it no longer")
	}
	h.lock.Unlock()
	if !was {
		return nil
	}
	return h.say(ctx)
}

// say reports the host, which may have more room than before.
func (h *Host) say(ctx context.Context) error {
	if err := h.talk(ctx); err != nil {
		return err
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.tellReferee()
	return nil
}
