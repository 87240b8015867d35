// Package apps runs Apps: for each Instance it chooses a host, has the host reserve the lane, and confirms
// the reservation. It ends an Instance only if a person deletes the App or makes it smaller.
package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/plan"
)

// Controller looks after Apps, one at a time, so that no room is promised to two of them.
type Controller struct {
	Core   kubernetes.Interface
	Client dynamic.Interface
	Log    *slog.Logger
	Answer time.Duration // how long a host may take to answer; 0: two seconds
	// Count, if not nil, is told twice a minute how many hosts the hub has.
	Count func(ctx context.Context, hosts int)

	index              place.Index
	apps, hosts, sites cache.Store
	tenants            atomic.Value // a cache.Store
	book               *book
	queue              workqueue.TypedRateLimitingInterface[string]
	refusals           map[string]map[string]refusal // by App and host
	mutes              mutes
	explained          map[string]string // the last message about each App that is not placed

	leasesSince time.Time // since when each listing of Leases has succeeded

	lock    sync.Mutex
	changed map[string]bool      // hosts, as NAMESPACE/NAME, whose copies are out of date
	expired map[string]time.Time // hosts whose Leases have expired, and when they were last seen
}

// refusal records that a host does not take an App. The host is not asked again until it has reported
// something new, or for a while.
type refusal struct {
	kind       place.Kind
	why        string
	generation int64  // of the App
	version    string // of the Host
	until      time.Time
}

// For how long a host is not asked again for the same: refusalPause if it has said no, silencePause if it has
// not answered. Hosts notice a hub that was away within ten seconds.
const (
	refusalPause = time.Minute
	silencePause = 15 * time.Second
)

// Run looks after Apps until the context ends.
func (c *Controller) Run(ctx context.Context) {
	c.refusals, c.changed, c.explained = map[string]map[string]refusal{}, map[string]bool{}, map[string]string{}
	c.mutes = newMutes()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.Client, 0)
	c.sites = factory.ForResource(api.Resource("sites")).Informer().GetStore()
	instances := factory.ForResource(api.Resource("instances")).Informer()
	err := instances.AddIndexers(byLabels())
	c.book = newBook(c.Client, instances.GetIndexer())
	for resource, heard := range map[string]cache.ResourceEventHandler{
		"apps":      eachChange(func(u *unstructured.Unstructured) { c.queue.Add(nameOfObject(u)) }),
		"instances": eachChange(c.instanceChanged),
		"tenants":   eachChange(func(u *unstructured.Unstructured) { c.wake(u.GetName()) }),
		"hosts":     eachChange(c.hostChanged),
	} {
		informer, trim := factory.ForResource(api.Resource(resource)).Informer(), trimManagers
		switch resource {
		case "apps":
			c.apps = informer.GetStore()
		case "hosts":
			c.hosts, trim = informer.GetStore(), trimHost
		case "instances":
			trim = trimInstance
		case "tenants":
			c.tenants.Store(informer.GetStore())
		}
		if err == nil {
			err = informer.SetTransform(trim)
		}
		if err == nil {
			_, err = informer.AddEventHandler(heard)
		}
	}
	if err != nil {
		c.Log.ErrorContext(ctx, "Apps are not looked after", "error", err)
		return
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for err = c.book.catchUp(ctx); err != nil && ctx.Err() == nil; err = c.book.catchUp(ctx) {
		c.Log.WarnContext(ctx, "the Instances are not known, and no App is looked after", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	c.checkLeases(ctx)
	go c.watchLeases(ctx)
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.reconcileNext(ctx) {
	}
	factory.Shutdown()
}

// eachChange calls heard for each change of an object.
func eachChange[T any](heard func(T)) cache.ResourceEventHandler {
	each := func(object any) {
		if gone, is := object.(cache.DeletedFinalStateUnknown); is {
			object = gone.Obj
		}
		if is, as := object.(T); as {
			heard(is)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: each, DeleteFunc: each,
		UpdateFunc: func(_, object any) { each(object) }}
}

func nameOfObject(u *unstructured.Unstructured) string { return u.GetNamespace() + "." + u.GetName() }

// isTenant reports whether a namespace belongs to a Tenant.
func (c *Controller) isTenant(space string) bool {
	store, is := c.tenants.Load().(cache.Store)
	if !is { // Tenants come later, and each wakes its own
		return false
	}
	_, there, err := store.GetByKey(space)
	return there && err == nil
}

// wake queues an App, NAMESPACE.NAME, or the Quota of a namespace, whose name has no dot.
func (c *Controller) wake(app string) {
	if app != "" {
		c.queue.Add(app)
	}
}

// instanceChanged wakes the App and the Quota to which an Instance belongs.
func (c *Controller) instanceChanged(i *api.Instance) {
	c.book.heard(*i)
	c.wake(i.Labels[api.AppOf])
	if space := i.Labels[api.TenantOf]; c.isTenant(space) {
		c.wake(space)
	}
}

// hostChanged has the copy of a host renewed, and wakes the Apps that still lack a host.
func (c *Controller) hostChanged(u *unstructured.Unstructured) {
	c.lock.Lock()
	c.changed[u.GetNamespace()+"/"+u.GetName()] = true
	c.lock.Unlock()
	for _, object := range c.apps.List() {
		if app, is := object.(*unstructured.Unstructured); is {
			if phase, _, _ := unstructured.NestedString(app.Object, "status", "phase"); phase == Pending {
				c.queue.Add(nameOfObject(app))
			}
		}
	}
}

// reconcileNext looks after one App or one Quota.
func (c *Controller) reconcileNext(ctx context.Context) bool {
	app, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(app)
	c.refresh(ctx)
	do := c.reconcile
	if !strings.Contains(app, ".") {
		do = c.writeQuota
	}
	again, err := do(ctx, app)
	switch {
	case err != nil && ctx.Err() == nil:
		c.Log.WarnContext(ctx, "an App or a Quota is not as it should be, and is tried again", "of", app,
			"error", err)
		c.queue.AddRateLimited(app)
	case again > 0:
		c.queue.Forget(app)
		c.queue.AddAfter(app, again)
	default:
		c.queue.Forget(app)
	}
	return true
}

// refresh renews the copies of the hosts that have changed.
func (c *Controller) refresh(ctx context.Context) {
	c.lock.Lock()
	changed := c.changed
	c.changed = map[string]bool{}
	c.lock.Unlock()
	for _, at := range slices.Sorted(maps.Keys(changed)) {
		_, name, _ := strings.Cut(at, "/")
		object, there, err := c.hosts.GetByKey(at)
		u, is := object.(*unstructured.Unstructured)
		if err != nil || !there || !is {
			c.index.Remove(name)
			continue
		}
		copied, err := c.copyOf(u)
		if err == nil {
			err = c.index.Put(copied)
		}
		if err != nil {
			c.index.Remove(name)
			if !errors.Is(err, errNotReported) {
				c.Log.WarnContext(ctx, "a host gets no Apps", "host", name, "error", err)
			}
		}
	}
}

// errNotReported means that a host has not reported yet.
var errNotReported = errors.New("it has not said yet what it is like")

// copyOf returns the hub's copy of a host, by its last report.
func (c *Controller) copyOf(u *unstructured.Unstructured) (place.Host, error) {
	machine, err := machineOf(u)
	if err != nil {
		return place.Host{}, err
	}
	h, err := api.From[api.Host](u)
	if err != nil {
		return place.Host{}, err
	}
	copied := place.Host{Name: h.Name, Site: h.Spec.Site, Labels: h.Status.ProvedLabels(), Root: h.Status.Root}
	for key, value := range h.Labels {
		if !strings.HasPrefix(key, api.Proved) { // nobody may set these labels by hand
			copied.Labels[key] = value
		}
	}
	var lanes struct{ Lanes []plan.Lane }
	if err = json.Unmarshal(machine, &copied.Machine); err == nil {
		err = json.Unmarshal(machine, &lanes)
	}
	if err == nil { // the planner relies on it: a reported machine is not one that was read
		err = copied.Machine.Validate()
	}
	if err != nil {
		return copied, fmt.Errorf("host %s: status.machine: %w", h.Name, err)
	}
	copied.Placed = plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Lanes: lanes.Lanes,
		Host: plan.MachineOf(copied.Machine)}
	object, _, err := c.sites.GetByKey(h.Spec.Site)
	if s, is := object.(*unstructured.Unstructured); is && err == nil {
		copied.Zone, _, err = unstructured.NestedString(s.Object, "spec", "zone")
	}
	return copied, err
}
