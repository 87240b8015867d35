package apps

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/hub/api"
)

// book has the Instances of all hosts as the watch of the API server shows them, and knows which this hub has
// written since: those are read anew. To list the Instances of one App, the API server reads those of all.
type book struct {
	client dynamic.Interface
	seen   cache.Indexer // of *api.Instance, by its labels

	lock sync.Mutex
	own  map[string]metav1.ObjectMeta // by NAMESPACE/NAME: newer than what the watch has shown
}

// byLabels returns the indexes of the Instances that a book sees.
func byLabels() cache.Indexers {
	all := cache.Indexers{}
	for _, label := range []string{api.AppOf, api.TenantOf} {
		all[label] = func(object any) ([]string, error) {
			i, is := object.(*api.Instance)
			if !is {
				return nil, nil
			}
			return []string{i.Labels[label]}, nil
		}
	}
	return all
}

func newBook(client dynamic.Interface, seen cache.Indexer) *book {
	return &book{client: client, seen: seen, own: map[string]metav1.ObjectMeta{}}
}

// catchUp lists the Instances once: the watch of an API server with a cache may begin with an older state
// than the hub that looked after Apps before has left.
func (b *book) catchUp(ctx context.Context) error {
	all, err := listInstances(ctx, b.client, "")
	for _, i := range all {
		b.wrote(i)
	}
	return err
}

// listInstances returns the present Instances that have a label; all, for "".
func listInstances(ctx context.Context, client dynamic.Interface, label string) (
	all []api.Instance, err error) {
	list, err := client.Resource(api.Resource("instances")).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	for n := range list.Items {
		i, err := api.From[api.Instance](&list.Items[n])
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

func keyOf(i metav1.ObjectMeta) string { return i.Namespace + "/" + i.Name }

// isNewer reports whether an Instance is a later state than another one of its name.
func isNewer(i, than metav1.ObjectMeta) bool {
	order, err := resourceversion.CompareResourceVersion(i.ResourceVersion, than.ResourceVersion)
	return err != nil || order > 0 // read anew, when in doubt
}

// wrote notes an Instance as this hub has written it.
func (b *book) wrote(i api.Instance) {
	b.lock.Lock()
	defer b.lock.Unlock()
	key := keyOf(i.ObjectMeta)
	object, _, _ := b.seen.GetByKey(key)
	if was, is := object.(*api.Instance); !is || isNewer(i.ObjectMeta, was.ObjectMeta) {
		b.own[key] = i.ObjectMeta
	}
}

// heard notes that the watch has shown an Instance, or its end.
func (b *book) heard(i api.Instance) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if own, is := b.own[keyOf(i.ObjectMeta)]; is && !isNewer(own, i.ObjectMeta) {
		delete(b.own, keyOf(i.ObjectMeta))
	}
}

// unseen returns what this hub has written with a label, and the watch has not shown.
func (b *book) unseen(label, value string) (all []metav1.ObjectMeta) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, i := range b.own {
		if i.Labels[label] == value {
			all = append(all, i)
		}
	}
	return all
}

// with returns the Instances with a label, in the order of their hosts.
func (b *book) with(ctx context.Context, label, value string) ([]api.Instance, error) {
	own := b.unseen(label, value) // first: what the watch shows meanwhile is in both
	objects, err := b.seen.ByIndex(label, value)
	if err != nil {
		return nil, err
	}
	all := map[string]api.Instance{}
	for _, object := range objects {
		if i, is := object.(*api.Instance); is {
			all[keyOf(i.ObjectMeta)] = *i
		}
	}
	for _, i := range own {
		u, err := b.client.Resource(api.Resource("instances")).Namespace(i.Namespace).Get(ctx, i.Name,
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			delete(all, keyOf(i))
			b.lock.Lock()
			delete(b.own, keyOf(i))
			b.lock.Unlock()
			continue
		}
		if err != nil {
			return nil, err
		}
		if all[keyOf(i)], err = api.From[api.Instance](u); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(all), func(i, j api.Instance) int {
		return cmp.Compare(keyOf(i.ObjectMeta), keyOf(j.ObjectMeta))
	}), nil
}
