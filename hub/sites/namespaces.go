package sites

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	watchapi "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/hub/api"
)

// EndNamespaces does for deleted namespaces what a controller manager does elsewhere: it deletes their
// contents, and then lets them go. It ends with the context.
func EndNamespaces(ctx context.Context, core kubernetes.Interface, client dynamic.Interface,
	log *slog.Logger) {
	ending := fields.OneTermEqualSelector("status.phase", string(corev1.NamespaceTerminating)).String()
	// Each host has a namespace, so listing all of them again and again is expensive.
	store, watch := cache.NewInformerWithOptions(cache.InformerOptions{
		ObjectType: &corev1.Namespace{}, Handler: cache.ResourceEventHandlerFuncs{},
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = ending
				return core.CoreV1().Namespaces().List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watchapi.Interface, error) {
				o.FieldSelector = ending
				return core.CoreV1().Namespaces().Watch(ctx, o)
			}}})
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { watch.RunWithContext(ctx) })
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		var err error
		for _, object := range store.List() {
			if n, is := object.(*corev1.Namespace); is && err == nil {
				err = endNamespace(ctx, core, client, n.DeepCopy())
			}
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a namespace is not deleted yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// endNamespace does one step. It ends Apps and Instances first, because a host needs its rights until it has
// ended them.
func endNamespace(ctx context.Context, core kubernetes.Interface, client dynamic.Interface,
	n *corev1.Namespace) error {
	left := 0
	for _, resource := range []string{"apps", "instances"} {
		more, err := empty(ctx, client.Resource(api.Resource(resource)).Namespace(n.Name))
		if err != nil {
			return err
		}
		left += more
	}
	if left > 0 {
		return nil
	}
	lists, err := core.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	both := discovery.SupportsAllVerbs{Verbs: []string{"list", "deletecollection"}}
	all, err := discovery.GroupVersionResources(discovery.FilteredBy(both, lists))
	if err != nil {
		return err
	}
	for gvr := range all {
		more, eerr := empty(ctx, client.Resource(gvr).Namespace(n.Name))
		if eerr != nil {
			return eerr
		}
		left += more
	}
	if left > 0 {
		return nil
	}
	n.Spec.Finalizers = slices.DeleteFunc(n.Spec.Finalizers,
		func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = core.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	return err
}

// empty deletes the objects of a resource in a namespace, and returns how many there were. They are gone when
// it returns 0.
func empty(ctx context.Context, r dynamic.ResourceInterface) (int, error) {
	list, err := r.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return 0, err
	}
	err = r.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	return len(list.Items), err
}
