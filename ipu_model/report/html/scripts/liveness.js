// Liveness: the stretch of steps under the pointer.
{
  const { data, size } = page;
  const live = document.querySelector("#live svg"), cursor = document.getElementById("live-cursor");
  const info = document.getElementById("live-info");
  live.onmousemove = (event) => {
    const box = live.getBoundingClientRect(), wide = live.viewBox.baseVal.width;
    const share = ((event.clientX - box.left) / box.width * wide - data.liveLeft) / (wide - data.liveLeft - 10);
    if (share < 0 || share > 1 || !data.live.points.length) return;
    const step = share * data.live.steps;
    const found = data.live.points.findLast(([at]) => at <= step) ?? data.live.points[0];
    const x = data.liveLeft + share * (wide - data.liveLeft - 10);
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    info.textContent = `Step ${found[0]}, ${data.live.names[found[2]]}: ${size(data.live.always)} always live and ${size(found[1])} beside, over all tiles`;
  };
}
