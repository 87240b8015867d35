package apps

import (
	"context"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/hub/api"
)

// quota is the name of the only Quota in a namespace.
const quota = "tenant"

// amountsOf returns what all Instances of a namespace's Apps use together, except those of the App without
// ("": no exception).
func (c *Controller) amountsOf(ctx context.Context, space, without string) (all amounts, err error) {
	has, err := c.book.with(ctx, api.TenantOf, space)
	if err != nil {
		return all, err
	}
	return sumOf(slices.DeleteFunc(has, func(i api.Instance) bool { return i.Name == without }))
}

// sumOf returns what Instances use together.
func sumOf(instances []api.Instance) (all amounts, err error) {
	for _, i := range instances {
		has, err := api.Lane(i.Name, i.Spec.Lane)
		if err != nil {
			return all, err
		}
		all = all.plus(amountsFor(has.Spec), 1)
	}
	return all, nil
}

// writeQuota writes a tenant's limits and use into its own namespace, and returns when to look again.
func (c *Controller) writeQuota(ctx context.Context, space string) (time.Duration, error) {
	own := c.Client.Resource(api.Resource("quotas")).Namespace(space)
	u, err := c.Client.Resource(api.Resource("tenants")).Get(ctx, space, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err = own.Delete(ctx, quota, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
			err = nil
		}
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	t, err := api.From[api.Tenant](u)
	if err != nil {
		return 0, err
	}
	has, err := c.amountsOf(ctx, space, "")
	if err != nil {
		return 0, err
	}
	now, err := own.Get(ctx, quota, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return 0, err
	}
	var q api.Quota
	if !missing {
		if q, err = api.From[api.Quota](now); err != nil {
			return 0, err
		}
	}
	if missing || !reflect.DeepEqual(q.Spec, t.Spec) {
		q.APIVersion, q.Kind, q.Name, q.Spec = api.Group+"/"+api.Version, "Quota", quota, t.Spec
		if u, err = api.To(q); err != nil {
			return 0, err
		}
		if missing {
			u, err = own.Create(ctx, u, metav1.CreateOptions{})
		} else {
			u, err = own.Update(ctx, u, metav1.UpdateOptions{})
		}
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			// The tenant has no namespace yet, or soon no longer.
			return retry, nil
		}
		if err == nil {
			q, err = api.From[api.Quota](u)
		}
		if err != nil {
			return 0, err
		}
	}
	said := api.QuotaStatus{Used: api.Used{CPUs: int(has.cpus), Memory: has.memory.String(),
		Hugepages: has.hugepages.String(), Functions: int(has.functions), Instances: int(has.instances)}}
	if q.Status != said {
		q.Status = said
		_, err = api.WriteStatus(ctx, own, q)
	}
	return 0, err
}
