-- Partitions of each size.
local stock = {
@STOCK@
}

local function ours(licences)
   for _, name in ipairs(licence_names(licences)) do
      if string.find(name, "^podwright_") or string.find(name, "^vipu_%d+$") then return name end
   end
end

-- Does a submitted job have devices?
local function has_devices(job)
   return ours(job.licenses) ~= nil
end

local function there()
   local sizes, out = {}, {}
   for size in pairs(stock) do sizes[#sizes + 1] = size end
   table.sort(sizes)
   for _, size in ipairs(sizes) do out[#out + 1] = string.format("%d of vipu:%d", stock[size], size) end
   return table.concat(out, ", ")
end

local function devices(jd, uid)
   local words = gres(jd)
   local typed = ours(jd.licenses)
   if typed and not is_trusted(uid) then
      return refuse("licence %s is not asked for by name; ask with --gres=vipu:SIZE", typed)
   end
   if words == nil then return slurm.SUCCESS end
   local het = jd.het_job_offset
   if het ~= nil and het < 100000 then
      return refuse("partitions made beforehand are not for heterogeneous jobs")
   end
   if either_or(jd) then
      return refuse("-L '%s' with --gres=vipu: Slurm takes no licence list with | beside other licences, "
         .. "and partitions are counted by licences", jd.licenses)
   end
   local nodes = jd.min_nodes
   if nodes == nil or nodes >= NONE or nodes < 1 then nodes = 1 end
   local wanted, all = {}, { "podwright_job:1" }
   for _, word in ipairs(words) do
      local size, count = string.match(word, "^(%d+)$"), 1
      if size == nil then size, count = string.match(word, "^(%d+):(%d+)$") end
      if size == nil then
         return refuse("--gres=%s is not understood: vipu:SIZE, or vipu:SIZE:HOW_MANY. There are %s",
            word == "" and "vipu" or "vipu:" .. word, there())
      end
      size, count = tonumber(size), tonumber(count) * nodes
      if stock[size] == nil then
         return refuse("--gres=vipu:%s asks for a partition of %d devices, and there is none; there are %s. "
            .. "%d partitions of one size are vipu:SIZE:%d", word, size, there(), size, size)
      end
      if count < 1 then return refuse("--gres=vipu:%s asks for none", word) end
      wanted[size] = (wanted[size] or 0) + count
      if wanted[size] > stock[size] then
         return refuse("--gres=vipu:%s asks for %d partitions of %d devices, for %d host(s); there are %s",
            word, wanted[size], size, nodes, there())
      end
   end
   for size, count in pairs(wanted) do all[#all + 1] = string.format("vipu_%d:%d", size, count) end
   note(jd, "vipu=" .. table.concat(words, ","))
   with_licences(jd, all)
   return slurm.SUCCESS
end

