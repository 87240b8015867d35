package apps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// amounts is what lanes ask for together.
type amounts struct {
	cpus, functions, instances uint64
	memory, hugepages          quantity.Bytes
}

func amountsFor(l lane.Spec) amounts {
	a := amounts{cpus: uint64(max(0, l.CPUs.Count)), functions: uint64(max(0, l.Network.VFs)), instances: 1,
		memory: l.Memory.Size}
	if p := l.Network.Path; p == "sriov" || p == "auto" && l.Network.Device != "" { // auto may become sriov
		a.functions = max(a.functions, 1)
	}
	for _, size := range l.Memory.Hugepages {
		a.hugepages += size
	}
	return a
}

func (a amounts) plus(b amounts, times int) amounts {
	n := uint64(max(0, times))
	return amounts{a.cpus + n*b.cpus, a.functions + n*b.functions, a.instances + n*b.instances,
		a.memory + quantity.Bytes(n)*b.memory, a.hugepages + quantity.Bytes(n)*b.hugepages}
}

// tenant is what limits one App: its quota, what its other Apps use, and what each Instance would add.
type tenant struct {
	name         string
	quota        api.TenantSpec
	others, each amounts
	ending       []string // hosts that still end an Instance of the App; others includes it
}

// addEnding counts the Instances that an App no longer wants, as long as they exist. A mere reservation is
// gone as soon as it is withdrawn.
func (t *tenant) addEnding(has, live []api.Instance) error {
	ending := slices.DeleteFunc(slices.Clone(has), func(i api.Instance) bool {
		return i.Spec.Reserve && len(i.Finalizers) == 0 ||
			slices.ContainsFunc(live, func(l api.Instance) bool { return l.UID == i.UID })
	})
	for _, i := range ending {
		t.ending = append(t.ending, hostOf(i))
	}
	more, err := sumOf(ending)
	t.others = t.others.plus(more, 1)
	return err
}

// tenant returns the tenant of an App's namespace.
func (c *Controller) tenant(ctx context.Context, app api.App, l lane.Lane) (tenant, error) {
	t := tenant{name: app.Namespace, each: amountsFor(l.Spec)}
	u, err := c.Client.Resource(api.Resource("tenants")).Get(ctx, app.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	is, err := api.From[api.Tenant](u)
	if err != nil {
		return t, err
	}
	t.quota = is.Spec
	own := func(site string) bool { return slices.Contains(t.quota.Sites, site) }
	if want := app.Spec.Where.Sites; len(want) > 0 && len(t.quota.Sites) > 0 && !slices.ContainsFunc(want, own) {
		return t, fmt.Errorf("spec.where.sites: expected one of the tenant's, %s",
			strings.Join(t.quota.Sites, ", "))
	}
	t.others, err = c.amountsOf(ctx, app.Namespace, l.Metadata.Name)
	return t, err
}

// checkQuota says which limits of the quota forbid so many Instances of the App; nil: none.
func (t tenant) checkQuota(instances int) error {
	all := t.others.plus(t.each, instances)
	var over []error
	also := ""
	if len(t.ending) > 0 {
		also = ", with what has not ended yet on " + strings.Join(t.ending, ", ")
	}
	exceeds := func(what string, asked, most any, is bool) {
		if is {
			over = append(over, fmt.Errorf("tenant %s may have %v %s, and this App would make it %v%s: expected a "+
				"smaller one, or that a platform admin raises the quota", t.name, most, what, asked, also))
		}
	}
	for _, n := range []struct {
		what string
		has  uint64
		most *int
	}{{"CPUs", all.cpus, t.quota.CPUs}, {"functions", all.functions, t.quota.Functions},
		{"Instances", all.instances, t.quota.Instances}} {
		if n.most != nil {
			exceeds(n.what, n.has, *n.most, n.has > uint64(max(0, *n.most)))
		}
	}
	for _, n := range []struct {
		what, most string
		has        quantity.Bytes
	}{{"memory", t.quota.Memory, all.memory}, {"hugepages", t.quota.Hugepages, all.hugepages}} {
		if n.most == "" {
			continue
		}
		var most quantity.Bytes
		if err := most.UnmarshalText([]byte(n.most)); err != nil {
			return fmt.Errorf("tenant %s: spec.%s: %w", t.name, n.what, err)
		}
		exceeds(n.what, n.has, most, n.has > most)
	}
	return errors.Join(over...)
}
