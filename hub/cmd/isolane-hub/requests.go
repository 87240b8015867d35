package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/simulate"
	"isolane.dev/isolane/lane"
)

// tenants is how many tenants ask. Together their quotas are a third more than there is, but the first ask
// more often, so that they meet theirs.
const tenants = 4

// crowd is many requests of several tenants at the same time.
type crowd struct {
	*simulation
	referee *simulate.Referee
	quota   int // CPUs of each tenant
	tag     string

	lock      sync.Mutex
	waiting   map[string]chan api.AppStatus // by NAMESPACE.NAME
	instances map[string]api.Instance       // by UID
	has       []simulate.Request            // that were accepted and not deleted
	took      []time.Duration
	counts    map[string]int // by answer
	own       atomic.Int64
	judging   sync.WaitGroup
}

// The answers to a request.
const (
	accepted = "placed"
	full     = "refused for want of room"
	over     = "refused by a quota"
	undone   = "undecided, as hosts have refused"
)

// requests declares Apps of several tenants, many at a time, while hosts change by themselves. A referee
// judges each answer.
func (s *simulation) requests(ctx context.Context, n, atOnce, cpus int) error {
	c := &crowd{simulation: s, referee: &simulate.Referee{Margin: 2 * time.Second}, quota: cpus * len(s.all) / 3,
		tag: "r" + fmt.Sprint(time.Now().Unix()), waiting: map[string]chan api.AppStatus{},
		instances: map[string]api.Instance{}, counts: map[string]int{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range tenants {
		if err := c.tenant(ctx, c.name(i)); err != nil {
			return err
		}
	}
	for _, h := range s.all {
		h.Judge(c.referee)
	}
	if err := c.follow(ctx); err != nil {
		return err
	}
	from := time.Now()
	err := c.ask(ctx, n, atOnce)
	took := time.Since(from)
	if err == nil {
		err = c.settle(ctx)
	}
	if err != nil {
		return err
	}
	say(c.took, fmt.Sprintf("requests of %d tenants, %d at once, from declared to answered", tenants, atOnce))
	fmt.Printf("%.1f in a second; %d %s, %d %s, %d %s, %d %s; hosts changed by themselves %d times\n",
		float64(n)/took.Seconds(), c.counts[accepted], accepted, c.counts[full], full, c.counts[over], over,
		c.counts[undone], undone, c.own.Load())
	wrong := c.referee.Verdict()
	fmt.Printf("%d wrong\n", len(wrong))
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

func (c *crowd) name(tenant int) string { return fmt.Sprintf("%s-%d", c.tag, tenant) }

// tenant makes a tenant with its quota.
func (c *crowd) tenant(ctx context.Context, name string) error {
	if err := c.space(ctx, name); err != nil {
		return err
	}
	u, err := api.To(api.Tenant{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version,
		Kind: "Tenant"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: api.TenantSpec{CPUs: &c.quota}})
	if err == nil {
		_, err = c.client.Resource(api.Resource("tenants")).Create(ctx, u, metav1.CreateOptions{})
	}
	c.referee.Uses(name, 0, 0, c.quota)
	return err
}

// follow watches Apps and Instances.
func (c *crowd) follow(ctx context.Context) error {
	f := dynamicinformer.NewDynamicSharedInformerFactory(c.client, 0)
	for kind, seen := range map[string]func(*unstructured.Unstructured, bool){"apps": c.seenApp,
		"instances": c.seenInstance} {
		i := f.ForResource(api.Resource(kind)).Informer()
		of := func(o any, gone bool) {
			if last, is := o.(cache.DeletedFinalStateUnknown); is {
				o = last.Obj
			}
			if u, is := o.(*unstructured.Unstructured); is {
				seen(u, gone)
			}
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { of(o, false) },
			UpdateFunc: func(_, o any) { of(o, false) }, DeleteFunc: func(o any) { of(o, true) }}); err != nil {
			return err
		}
	}
	f.Start(ctx.Done())
	for kind, is := range f.WaitForCacheSync(ctx.Done()) {
		if !is {
			return fmt.Errorf("%s: no list from the API server: %w", kind.Resource, ctx.Err())
		}
	}
	return nil
}

func (c *crowd) seenApp(u *unstructured.Unstructured, _ bool) {
	a, err := api.From[api.App](u)
	if err != nil {
		c.warn(err)
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if to, waits := c.waiting[a.Namespace+"."+a.Name]; waits {
		select {
		case <-to: // an older answer
		default:
		}
		to <- a.Status
	}
}

func (c *crowd) seenInstance(u *unstructured.Unstructured, gone bool) {
	i, err := api.From[api.Instance](u)
	if err != nil {
		c.warn(err)
		return
	}
	tenant := i.Labels[api.TenantOf]
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.instances[string(i.UID)] = i; gone {
		delete(c.instances, string(i.UID))
	}
	if !strings.HasPrefix(tenant, c.tag) {
		return
	}
	given, reserved := 0, 0
	for _, i := range c.instances {
		if i.Labels[api.TenantOf] != tenant {
			continue
		}
		l, err := api.Lane(i.Name, i.Spec.Lane)
		if err != nil {
			c.warn(err)
		}
		if reserved += l.Spec.CPUs.Count; !i.Spec.Reserve {
			given += l.Spec.CPUs.Count
		}
	}
	c.referee.Uses(tenant, given, reserved, c.quota)
}

// ask makes all requests.
func (c *crowd) ask(ctx context.Context, n, atOnce int) error {
	var next atomic.Int64
	var some sync.WaitGroup
	failed := make(chan error, atOnce)
	for range atOnce {
		some.Go(func() {
			for i := next.Add(1); int(i) <= n; i = next.Add(1) {
				if err := c.one(ctx, int(i)); err != nil {
					failed <- err
					return
				}
				if i%1000 == 0 {
					fmt.Printf("%d of %d requests, %d wrong\n", i, n, len(c.referee.Verdict()))
				}
			}
		})
	}
	some.Wait()
	close(failed)
	return <-failed
}

// one makes a request, has the answer judged, and deletes an App: this one if it was refused, else with a
// chance of a half another one that was accepted.
func (c *crowd) one(ctx context.Context, i int) error {
	r := simulate.Request{Name: fmt.Sprint("app-", i), Tenant: c.name(min(pick(tenants), pick(tenants))),
		CPUs: 1 + pick(12), SMT: []string{lane.Any, lane.Isolate}[pick(2)]}
	if pick(3) == 0 { // people of a host put a lane in force there, or release one
		c.all[pick(len(c.all))].ChangeOwn(ctx, pick(2)*(1+pick(6)))
		c.own.Add(1)
	}
	key := r.Tenant + "." + r.Name
	to := make(chan api.AppStatus, 1)
	c.lock.Lock()
	c.waiting[key] = to
	c.lock.Unlock()
	r.Since = time.Now()
	if err := c.make(ctx, r.Tenant, r.Name, lane.CPUs{Count: r.CPUs, SMT: r.SMT}); err != nil {
		return err
	}
	answer, err := c.answer(ctx, r, to)
	if err != nil {
		return err
	}
	until := time.Now()
	c.lock.Lock()
	delete(c.waiting, key)
	c.counts[answer]++
	c.took = append(c.took, until.Sub(r.Since))
	c.lock.Unlock()
	gone := &r
	switch answer {
	case accepted:
		c.lock.Lock()
		c.has = append(c.has, r)
		gone = nil
		if at := pick(2 * len(c.has)); at < len(c.has) {
			gone = new(c.has[at])
			c.has = slices.Delete(c.has, at, at+1)
		}
		c.lock.Unlock()
	case full:
		c.referee.Full(r, until)
	case over:
		c.judging.Go(func() { // what was used meanwhile is known a moment later
			<-time.After(c.referee.Margin)
			c.referee.OverQuota(r, until, c.quota)
		})
	}
	if gone == nil {
		return nil
	}
	return c.apps(gone.Tenant).Delete(ctx, gone.Name, metav1.DeleteOptions{})
}

// pick returns a number from 0 to below n.
func pick(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic(err) // "never returns an error": crypto/rand
	}
	return int(i.Int64())
}

// answer waits for the answer to a request.
func (c *crowd) answer(ctx context.Context, r simulate.Request, to chan api.AppStatus) (string, error) {
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	last := api.AppStatus{}
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-end.C:
			if last.Phase == "Pending" {
				return undone, nil
			}
			return "", fmt.Errorf("%s: no answer within a minute: %s %s", r, last.Phase, last.Message)
		case last = <-to:
		}
		asked := strings.Contains(last.Message, "refused") || strings.Contains(last.Message, "answer") ||
			strings.Contains(last.Message, "not needed")
		switch {
		case last.Phase == "Running":
			return accepted, nil
		case last.Phase == "Refused" && strings.Contains(last.Message, "quota"):
			return over, nil
		case last.Phase == "Refused":
			return "", fmt.Errorf("%s: %s", r, last.Message)
		case last.Phase == "Pending" && !asked && strings.Contains(last.Message, "too full"):
			return full, nil
		}
	}
}

// settle waits until all is as the Apps say, and has the referee see that each has one lane, on one host.
func (c *crowd) settle(ctx context.Context) error {
	c.judging.Wait()
	want := map[string]simulate.Request{}
	for _, r := range c.has {
		want[r.Tenant+"."+r.Name] = r
	}
	var on map[string][]string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		on = map[string][]string{}
		for _, h := range c.all {
			for _, l := range h.Lanes() {
				if strings.HasPrefix(l, c.tag) {
					on[l] = append(on[l], h.Name)
				}
			}
		}
		if len(on) == len(want) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	for name, r := range want {
		c.referee.Accepted(r, on[name])
		delete(on, name)
	}
	for name, hosts := range on {
		c.referee.Wrong("lane %s is on hosts %v, and no App has it", name, hosts)
	}
	return nil
}

// checkRequests checks what simulate was told about requests.
func (l load) checkRequests() error {
	if l.requests > 0 && l.atOnce < 1 {
		return cli.Usage(fmt.Errorf("--at-once: expected 1 at least, found %d", l.atOnce))
	}
	return nil
}
