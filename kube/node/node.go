// Package node is the part of Isolane that runs on each node of a cluster. It offers lanes to the scheduler,
// answers what pods ask for, puts lanes in force before their containers start, and takes them back. All its
// state is in the claims and in the record of the lanes in force, so it can be killed at any moment.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/kube/node/drift"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// Config says which node this is, and where its files are.
type Config struct {
	Name    string // of the node
	Client  kubernetes.Interface
	Kubelet string // its directory, /var/lib/kubelet
	CDI     string // the directory of the container device interface, /var/run/cdi
	NRI     string // the socket of the container runtime for its plugins, /var/run/nri/nri.sock
	Hook    string // the program that stops containers that start outside of their lane
	Answers bool   // claims are answered before their pods are bound
	Lanes   lanes.Options
	Log     *slog.Logger
}

// Node is the node part of one node.
type Node struct {
	Config
	claims     cache.MutationCache // the claims, including writes of this program that claimStore lacks
	claimStore cache.Store         // the claims as the API server sends them
	kubelet    *kubeletplugin.Helper
	partition  string // the kind that this kernel makes of a container's cgroup
	cpusets    string // the directory of the hierarchy with cpusets
	unified    bool   // the kernel has cgroup v2

	change    turn // held by whoever changes the host
	mu        sync.Mutex
	prepared  map[string]bool // by uid: claims that this program has prepared for the kubelet
	dropped   string          // which offered fields the API server drops
	uncounted bool            // the API server drops that claims count as CPUs of the node
	// By container id. cpuSetters: why a running container keeps lanes away (it is a plugin that sets
	// CPUs, or one set its CPUs). untouched: created without CPUs from this program, and not started yet.
	// keptOff: running with CPUs from this program.
	cpuSetters map[string]string
	untouched  map[string]bool
	keptOff    map[string]keptOff
	runtime    stub.Stub // the connection to the container runtime; nil before it has synchronized

	// Only watch uses these. published is the last offer; whyNothingOffered is why nothing was offered.
	published         []resourceapi.Device
	whyNothingOffered string
	withheld          map[string]withheld // by device
	limited           int                 // how many devices were published with limits
	orphans           bool                // lanes whose claims are gone still have processes
	drift             *drift.Watch
	foreign           map[types.UID]bool      // claims of devices that another node offers for this one: told
	restored          map[types.UID]time.Time // when the status of a claim was written again

	changed       chan struct{} // claims or lanes have changed
	runtimeSynced chan struct{} // closed when the container runtime has first synchronized
	whyImpossible string        // why lanes are impossible here while this program runs
}

// turn is a lock that one caller at a time holds.
type turn chan struct{}

// acquire waits for the turn until ctx ends.
func (t turn) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another change of the lanes goes on: %w", ctx.Err())
	}
}

func (t turn) release() { <-t }

// openLanes waits until ctx ends for the turn to change lanes, and opens them. The caller calls done.
func (n *Node) openLanes(ctx context.Context) (l *lanes.Lanes, done func(), err error) {
	if err = n.change.acquire(ctx); err != nil {
		return nil, nil, err
	}
	if l, _, err = lanes.OpenPatiently(ctx, n.Lanes); err != nil {
		n.change.release()
		return nil, nil, err
	}
	return l, func() {
		_ = l.Close() // only the lock: what was done is in the journal
		n.change.release()
	}, nil
}

// Run serves the kubelet, the scheduler and the container runtime until ctx ends. Lanes in force stay.
func Run(ctx context.Context, c Config) error {
	h, err := host.Read(host.Live())
	if err != nil {
		return err
	}
	cpusets, unified := h.Kernel.Cgroup.Cpuset()
	n := &Node{Config: c, partition: offer.Partition(h), cpusets: cpusets, unified: unified,
		prepared: map[string]bool{}, withheld: map[string]withheld{}, cpuSetters: map[string]string{},
		untouched: map[string]bool{}, keptOff: map[string]keptOff{},
		change: make(turn, 1), changed: make(chan struct{}, 1), runtimeSynced: make(chan struct{}),
		drift: drift.New(c.Lanes), foreign: map[types.UID]bool{}, restored: map[types.UID]time.Time{}}
	if err = n.recover(ctx); err != nil {
		return err
	}
	if err = n.checkAPI(ctx); err != nil {
		return err
	}
	if err = n.installHook(); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	unwatch, err := n.watchClaims(ctx)
	defer func() {
		end() // unwatch waits for that
		unwatch()
	}()
	if err != nil {
		return err
	}
	l, err := lanes.Look(n.Lanes)
	if err == nil {
		err = n.removeStaleCDI(l) // before anybody asks for a claim
		n.recordFirstPods(ctx)
	}
	if err == nil {
		n.whyImpossible, err = n.findImpossible(l)
	}
	if err != nil {
		return err
	}
	if err = n.startPlugin(ctx); err != nil {
		return err
	}
	defer n.kubelet.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serveRuntime(ctx)
	}()
	n.waitForOthers(ctx)
	n.watch(ctx)
	<-ended
	return n.drift.Close()
}

// startPlugin offers this program to the kubelet as a plugin.
func (n *Node) startPlugin(ctx context.Context) (err error) {
	plugins := filepath.Join(n.Kubelet, "plugins", offer.Driver)
	registry := filepath.Join(n.Kubelet, "plugins_registry")
	if _, err = os.Stat(registry); err != nil {
		return fmt.Errorf("--kubelet: expected the directory of this node's kubelet, which looks for plugins "+
			"there: %w", err)
	}
	n.kubelet, err = kubeletplugin.Start(ctx, n, kubeletplugin.DriverName(offer.Driver),
		kubeletplugin.NodeName(n.Name), kubeletplugin.KubeClient(n.Client),
		kubeletplugin.PluginDataDirectoryPath(plugins), kubeletplugin.HealthService(false),
		kubeletplugin.RegistrarDirectoryPath(registry))
	return err
}

// wakeWatch makes watch look again.
func (n *Node) wakeWatch() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// recover completes or undoes what a kill of this program has left half done.
func (n *Node) recover(ctx context.Context) error {
	o := n.Lanes
	o.Wait = func(h journal.Holder) {
		n.Log.InfoContext(ctx, "waiting for another program", "holder", h.String())
	}
	r, err := lanes.Recover(ctx, o, false)
	if len(r.PutBack)+len(r.Undone) > 0 {
		n.Log.InfoContext(ctx, "recovered", "putBack", len(r.PutBack), "undone", len(r.Undone))
	}
	if _, alone := errors.AsType[*enforce.NoRecordError](err); alone {
		return fmt.Errorf("%w: run isolane recover --adopt on the node", err)
	}
	return err
}

// watch follows claims, and what others do to the lanes of the host, until ctx ends.
func (n *Node) watch(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	state := ""
	var failed error // of the last look: try again even if nothing else changes
	for changed := true; ; {
		if changed {
			if failed = n.reconcile(ctx); failed != nil && ctx.Err() == nil {
				n.Log.ErrorContext(ctx, "look", "err", failed)
			}
		}
		if err := n.giveBack(ctx); err != nil && ctx.Err() == nil {
			n.Log.WarnContext(ctx, "CPUs of lanes that have gone", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
			changed = true
		case <-tick.C:
			if err := n.liftQuotas(ctx); err != nil { // before repairDrift, which knows no other owner of quotas
				n.Log.WarnContext(ctx, "quotas", "err", err)
			}
			n.repairDrift(ctx)
			now, err := enforce.State(n.Lanes.Complete().Dir)
			why := n.whyNotOffered()
			changed = failed != nil || err != nil || now != state || why != n.whyNothingOffered ||
				len(n.limits()) != n.limited || n.orphans
			state = now
		}
	}
}

// reconcile answers waiting claims, releases the lanes of claims that are gone, and offers what is left.
func (n *Node) reconcile(ctx context.Context) error {
	why := n.whyNotOffered()
	failed := n.releaseOrphans(ctx)
	l, err := lanes.Look(n.Lanes) // opened once, because planning with it reads the whole machine
	if err != nil {
		return errors.Join(failed, err)
	}
	n.tellForeign(ctx)
	failed = errors.Join(failed, n.restoreStatus(ctx, l))
	return errors.Join(failed, n.answer(ctx, l, why), n.publish(ctx, l, why))
}

// publish offers what is free, or nothing if why gives a reason.
func (n *Node) publish(ctx context.Context, l *lanes.Lanes, why string) error {
	var devices []resourceapi.Device
	limits := n.limits()
	if why == "" {
		var err error
		if devices, why, err = n.devices(l, limits); err != nil {
			return err
		}
	}
	n.limited = len(limits)
	if n.published != nil && equality.Semantic.DeepEqual(devices, n.published) && why == n.whyNothingOffered {
		return nil
	}
	err := n.kubelet.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		n.Name: {Slices: []resourceslice.Slice{{Devices: devices}}}}})
	if err != nil {
		return err
	}
	if why != n.whyNothingOffered && why != "" {
		n.emitEvent(ctx, n.nodeReference(), corev1.EventTypeWarning, "NoLanesOffered", why)
	}
	n.published, n.whyNothingOffered = append([]resourceapi.Device{}, devices...), why
	n.Log.InfoContext(ctx, "offered", "devices", len(devices), "why", why)
	return nil
}

// devices returns what is free. If CPUs of a lane have gone it returns in why that nothing can be offered.
func (n *Node) devices(l *lanes.Lanes, limits map[string]map[resourceapi.QualifiedName]resource.Quantity) (
	all []resourceapi.Device, why string, err error,
) {
	a, err := n.account(l, nil)
	if err != nil {
		return nil, "", err
	}
	all, err = offer.Node{Host: a.host, Placed: a.placed, Claims: a.claims, Pool: n.Name,
		Partition: n.partition, Answers: n.Answers, Counted: n.claimsCountAsCPUs(), Limits: limits}.Devices()
	if gone, is := errors.AsType[*plan.Mismatch](err); is {
		return nil, fmt.Sprintf("%s: no lanes are offered: expected them back, or the lane released",
			gone.Reason), nil
	}
	return all, "", err
}

// nodeReference returns this node for events. The uid is its name: the kubelet writes it so, and kubectl
// describe node looks for that.
func (n *Node) nodeReference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.Name)}
}

// emitEvent writes an event for the node or a pod.
func (n *Node) emitEvent(ctx context.Context, of corev1.ObjectReference, kind, reason, message string) {
	now := metav1.Now()
	e := &corev1.Event{InvolvedObject: of, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "isolane-kube", Host: n.Name}}
	e.GenerateName, e.Namespace = "isolane-", cmp.Or(of.Namespace, metav1.NamespaceDefault)
	if _, err := n.Client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
		n.Log.WarnContext(ctx, "event", "err", err)
	}
}
